# pika: publish with confirms, consume, reject, TTL. usage: python3 dead_letters.py AMQP_URL
import sys, time, pika

def check(good, what):
    print(("ok " if good else "FAILED ") + what)
    if not good:
        sys.exit(1)

connection = pika.BlockingConnection(pika.URLParameters(sys.argv[1]))
channel = connection.channel()
channel.confirm_delivery()
channel.queue_declare("py.dead", durable=True)
channel.queue_declare("py.work", durable=True, arguments={
    "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "py.dead", "x-queue-type": "quorum"})
headers = {"text": "grüße", "long": 2**40, "list": [1, "two", {"three": 3}], "none": None, "yes": True}
channel.basic_publish("", "py.work", b"hello", pika.BasicProperties(delivery_mode=2, headers=headers, message_id="m1"))
method, properties, body = next(channel.consume("py.work", inactivity_timeout=20))
check(body == b"hello" and properties.headers == headers, "a message comes as it was sent, headers included")
channel.basic_reject(method.delivery_tag, requeue=False)
channel.cancel()

def take(queue):
    for _ in range(500):
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is not None:
            return method, properties, body
        time.sleep(0.02)
    check(False, "something in " + queue)

_, properties, body = take("py.dead")
death = properties.headers["x-death"][0]
check(death["reason"] == "rejected" and death["count"] == 1 and death["queue"] == "py.work", "a rejected message has its x-death")
check({k: properties.headers[k] for k in headers} == headers, "and its own headers unchanged")
channel.basic_publish("", "py.work", b"late", pika.BasicProperties(expiration="50"))
_, properties, _ = take("py.dead")
check(properties.headers["x-death"][0]["reason"] == "expired", "an expired message too")
try:
    channel.queue_declare("py.none", passive=True)
    check(False, "a missing queue must be refused")
except pika.exceptions.ChannelClosedByBroker as error:
    check(error.reply_code == 404, "a missing queue is refused with 404")
connection.close()
print("done")
