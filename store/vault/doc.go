// Package vault encrypts what is kept in the database and must not be readable there.
//
//	master key (a file or the environment; never in the database)
//	     │ seals
//	     ▼
//	data keys (a Tink keyset each, in data_keys)
//	     │ encrypt, bound to where it stands
//	     ▼
//	values (secrets, job_secrets, signing_secrets)
//
// All of it is AES-256-GCM. Rotation makes a data key, encrypts every value with it and drops the others; another
// master key seals the data keys anew and touches no value.
package vault
