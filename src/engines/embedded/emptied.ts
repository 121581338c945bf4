/**
 * What to go on with where a Map or Set that lives long is emptied again and again: a new one. `clear` would go on in a
 * table of its own, and the table it has left keeps that one alive, and so on, with all that was ever in them, until a
 * full garbage collection.
 */
export const emptiedSet = <T>(set: Set<T>): Set<T> => (set.size > 0 ? new Set() : set);

/** See {@link emptiedSet}. */
export const emptiedMap = <K, V>(map: Map<K, V>): Map<K, V> => (map.size > 0 ? new Map() : map);
