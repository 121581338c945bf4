<?php
// php-amqplib: publish with confirms, nack, TTL. usage: php dead_letters.php HOST PORT
require_once 'PhpAmqpLib/autoload.php';
use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Message\AMQPMessage;
use PhpAmqpLib\Wire\AMQPTable;

function check($good, $what) {
    echo ($good ? 'ok ' : 'FAILED ') . $what . "\n";
    if (!$good) exit(1);
}
function take($channel, $queue) {
    for ($i = 0; $i < 500; $i++) {
        $message = $channel->basic_get($queue, true);
        if ($message) return $message;
        usleep(20000);
    }
    check(false, "something in $queue");
}
$connection = new AMQPStreamConnection($argv[1], (int) $argv[2], 'guest', 'guest');
$channel = $connection->channel();
$channel->confirm_select();
$channel->queue_declare('php.dead', false, true, false, false);
$channel->queue_declare('php.work', false, true, false, false, false, new AMQPTable([
    'x-dead-letter-exchange' => '', 'x-dead-letter-routing-key' => 'php.dead']));
$confirmed = false;
$channel->set_ack_handler(function () use (&$confirmed) { $confirmed = true; });
$channel->basic_publish(new AMQPMessage('hello', ['delivery_mode' => 2]), '', 'php.work');
$channel->wait_for_pending_acks(20);
check($confirmed, 'a publish is confirmed');
$seen = null;
$channel->basic_consume('php.work', '', false, false, false, false, function ($message) use (&$seen) {
    $seen = $message->getBody();
    $message->nack(false);
});
$channel->wait(null, false, 20);
check($seen === 'hello', 'a consumer gets it');
$headers = take($channel, 'php.dead')->get('application_headers')->getNativeData();
check($headers['x-death'][0]['reason'] === 'rejected', 'a nacked message has its x-death');
$channel->close();
$channel = $connection->channel();
$channel->basic_publish(new AMQPMessage('late', ['expiration' => '50']), '', 'php.work');
$headers = take($channel, 'php.dead')->get('application_headers')->getNativeData();
check($headers['x-death'][0]['reason'] === 'expired', 'an expired message too');
$connection->close();
echo "done\n";
