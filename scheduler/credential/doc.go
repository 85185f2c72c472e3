// Package credential adds to a request what authenticates and signs it: secrets of the job, access tokens, client
// certificates, and the signature of Standard Webhooks. It takes these secrets out of the answer.
package credential
