// Verifies signed requests, one a line of JSON on stdin: {"secret", "headers", "body" in base64}. Prints for each of
// them ok, or why it is none.
const { Webhook } = require('standardwebhooks');

for (const line of require('fs').readFileSync(0, 'utf8').split('\n').filter(Boolean)) {
  const { secret, headers, body } = JSON.parse(line);
  const sent = Buffer.from(body, 'base64').toString('utf8');
  try {
    // The library parses the body as JSON once it has verified it; that is not what is asked here.
    new Webhook(secret).verify(sent, headers);
    console.log('ok');
  } catch (error) {
    console.log(error instanceof SyntaxError ? 'ok' : error.message);
  }
}
