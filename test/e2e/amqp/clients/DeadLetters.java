// The Java client: the calls of a textbook on dead letters, and reject, nack, TTL, length, and a Spring topology.
// usage: java DeadLetters AMQP_URL   prints one line a check and "done"; exit status 1 when one fails.
import com.rabbitmq.client.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;

public class DeadLetters {
  static void check(boolean good, String what) {
    if (!good) { System.out.println("FAILED " + what); System.exit(1); }
    System.out.println("ok " + what);
  }
  static GetResponse take(Channel channel, String queue) throws Exception {
    for (int i = 0; i < 500; i++) {
      GetResponse got = channel.basicGet(queue, true);
      if (got != null) return got;
      Thread.sleep(20);
    }
    throw new Exception("nothing came to " + queue);
  }
  @SuppressWarnings("unchecked")
  static Map<String, Object> death(GetResponse got) {
    return ((List<Map<String, Object>>) got.getProps().getHeaders().get("x-death")).get(0);
  }

  public static void main(String[] argv) {
    try { run(argv); } catch (Throwable error) { error.printStackTrace(); System.exit(1); }
    System.exit(0);
  }

  static void run(String[] argv) throws Exception {
    ConnectionFactory factory = new ConnectionFactory();
    factory.setUri(argv[0]);
    Connection connection = factory.newConnection();
    Channel channel = connection.createChannel();
    textbook(channel);
    rejectAndNack(channel);
    length(channel);
    spring(channel, connection);
    refusal(connection);
    connection.close();
    System.out.println("done");
  }

  static void textbook(Channel channel) throws Exception {
    channel.exchangeDeclare("some.exchange.name", "direct");
    Map<String, Object> args = new HashMap<String, Object>();
    args.put("x-dead-letter-exchange", "some.exchange.name");
    args.put("x-dead-letter-routing-key", "some-routing-key");
    channel.queueDeclare("myqueue", false, false, false, args);
    channel.queueDeclare("dead", false, false, false, null);
    channel.queueBind("dead", "some.exchange.name", "some-routing-key");

    Map<String, Object> argss = new HashMap<String, Object>();
    argss.put("x-message-ttl", 6000);
    channel.queueDeclare("with.ttl", true, false, false, argss);

    AMQP.BasicProperties.Builder builder = new AMQP.BasicProperties.Builder();
    builder.deliveryMode(2);
    builder.expiration("60");
    AMQP.BasicProperties properties = builder.build();
    channel.basicPublish("", "myqueue", true, properties, "ttlTestMessage".getBytes());
    GetResponse expired = take(channel, "dead");
    check(new String(expired.getBody()).equals("ttlTestMessage"), "a message past its expiration is dead-lettered");
    check(death(expired).get("reason").toString().equals("expired"), "with reason expired");
    check(death(expired).get("original-expiration").toString().equals("60"), "and its expiration in x-death");
    check(death(expired).get("count").equals(1L), "counted once, as a long");
    check(expired.getProps().getExpiration() == null, "and no expiration any more");
  }

  static void rejectAndNack(Channel channel) throws Exception {
    for (String body : new String[] {"one", "two", "three"}) {
      channel.basicPublish("", "myqueue", MessageProperties.PERSISTENT_TEXT_PLAIN, body.getBytes());
    }
    channel.basicReject(channel.basicGet("myqueue", false).getEnvelope().getDeliveryTag(), false);
    GetResponse rejected = take(channel, "dead");
    check(new String(rejected.getBody()).equals("one"), "basicReject dead-letters");
    check(death(rejected).get("reason").toString().equals("rejected"), "with reason rejected");
    check(rejected.getEnvelope().getRoutingKey().equals("some-routing-key"), "under the dead-letter routing key");
    channel.basicGet("myqueue", false);
    channel.basicNack(channel.basicGet("myqueue", false).getEnvelope().getDeliveryTag(), true, false);
    check(new String(take(channel, "dead").getBody()).equals("two"), "basicNack multiple dead-letters the first");
    check(new String(take(channel, "dead").getBody()).equals("three"), "and the second");
    channel.basicPublish("", "myqueue", null, "again".getBytes());
    channel.basicReject(channel.basicGet("myqueue", false).getEnvelope().getDeliveryTag(), true);
    check(channel.basicGet("myqueue", true).getEnvelope().isRedeliver(), "basicReject with requeue brings it back");
  }

  static void length(Channel channel) throws Exception {
    Map<String, Object> args = new HashMap<String, Object>();
    args.put("x-dead-letter-exchange", "");
    args.put("x-dead-letter-routing-key", "dead");
    args.put("x-max-length", 2);
    channel.queueDeclare("short.queue", true, false, false, args);
    channel.confirmSelect();
    for (String body : new String[] {"a", "b", "c"}) channel.basicPublish("", "short.queue", null, body.getBytes());
    channel.waitForConfirmsOrDie(10000);
    GetResponse pushed = take(channel, "dead");
    check(new String(pushed.getBody()).equals("a"), "the oldest goes when a queue is too long");
    check(death(pushed).get("reason").toString().equals("maxlen"), "with reason maxlen");
  }

  /** What a Spring configuration with a delay queue, and its listener, do on the wire. */
  static void spring(Channel channel, Connection connection) throws Exception {
    channel.exchangeDeclare("order.topic.exchange", "topic", true, false, null);
    Map<String, Object> config = new HashMap<>();
    config.put("x-dead-letter-exchange", "order.topic.exchange");
    config.put("x-dead-letter-routing-key", "order.cancel");
    config.put("x-message-ttl", 300);
    channel.queueDeclare("order.delay.queue", true, false, false, config);
    channel.queueDeclare("order.dl.queue", true, false, false, null);
    channel.queueBind("order.delay.queue", "order.topic.exchange", "order.create");
    channel.queueBind("order.dl.queue", "order.topic.exchange", "order.cancel");
    Channel listener = connection.createChannel();
    listener.basicQos(250);
    BlockingQueue<String> seen = new LinkedBlockingQueue<>();
    listener.basicConsume("order.dl.queue", false, new DefaultConsumer(listener) {
      boolean failed = false;
      @Override public void handleDelivery(String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body) throws java.io.IOException {
        if (!failed) { failed = true; listener.basicNack(envelope.getDeliveryTag(), false, true); return; }
        listener.basicAck(envelope.getDeliveryTag(), false);
        seen.add(new String(body, StandardCharsets.UTF_8) + " " + envelope.isRedeliver() + " " + envelope.getRoutingKey());
      }
    });
    long sentAt = System.currentTimeMillis();
    channel.basicPublish("order.topic.exchange", "order.create", MessageProperties.PERSISTENT_TEXT_PLAIN, "注文-17".getBytes(StandardCharsets.UTF_8));
    check("注文-17 true order.cancel".equals(seen.poll(20, TimeUnit.SECONDS)), "an order comes out of its delay queue, and again after a nack");
    check(System.currentTimeMillis() - sentAt >= 295, "and not before its time");
    listener.close();
  }

  static void refusal(Connection connection) throws Exception {
    Channel channel = connection.createChannel();
    try {
      Map<String, Object> other = new HashMap<>();
      other.put("x-message-ttl", 1);
      channel.queueDeclare("with.ttl", true, false, false, other);
      check(false, "another TTL must be refused");
    } catch (java.io.IOException error) {
      ShutdownSignalException shutdown = (ShutdownSignalException) error.getCause();
      check(((AMQP.Channel.Close) shutdown.getReason()).getReplyCode() == 406, "a queue declared otherwise is refused with 406");
    }
    check(connection.isOpen(), "and the connection goes on");
  }
}
