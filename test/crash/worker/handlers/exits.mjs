process.exit(9);
