# bunny: publish with confirms, reject, TTL. usage: ruby dead_letters.rb AMQP_URL
require "bunny"

def check(good, what)
  puts((good ? "ok " : "FAILED ") + what)
  exit 1 unless good
end

def take(queue)
  500.times do
    delivery, properties, body = queue.pop
    return [delivery, properties, body] if delivery
    sleep 0.02
  end
  check(false, "something in #{queue.name}")
end

connection = Bunny.new(ARGV[0])
connection.start
channel = connection.create_channel
channel.confirm_select
dead = channel.queue("rb.dead", durable: true)
work = channel.queue("rb.work", durable: true,
                     arguments: { "x-dead-letter-exchange" => "", "x-dead-letter-routing-key" => "rb.dead" })
work.publish("hello", persistent: true, headers: { "n" => 1, "s" => "t" })
check(channel.wait_for_confirms, "a publish is confirmed")
got = Queue.new
consumer = work.subscribe(manual_ack: true) do |delivery, _, body|
  channel.reject(delivery.delivery_tag, false)
  got << body
end
check(got.pop == "hello", "a consumer gets it")
consumer.cancel
_, properties, = take(dead)
check(properties.headers["x-death"][0]["reason"] == "rejected", "a rejected message has its x-death")
work.publish("late", expiration: "50")
_, properties, = take(dead)
check(properties.headers["x-death"][0]["reason"] == "expired", "an expired message too")
connection.close
puts "done"
