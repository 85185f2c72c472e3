// Package vault encrypts values that are stored in the database and must not be readable there.
//
//	master key (a file or the environment; never in the database)
//	     │ seals
//	     ▼
//	data keys (a Tink keyset each, in data_keys)
//	     │ encrypt, bound to the value's place
//	     ▼
//	values (secrets, job_secrets, signing_secrets)
//
// All encryption is AES-256-GCM. Rotation makes a data key, re-encrypts every value with it and drops the older data
// keys. A new master key seals the data keys again and touches no value.
package vault
