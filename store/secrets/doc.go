// Package secrets keeps what authenticates and signs requests to targets: the named secrets of tenants, the secret
// values in definitions, and the secrets that sign callbacks. It owns the tables secrets, job_secrets, secret_uses,
// signing_secrets and data_keys. Values are encrypted by package vault with a data key; data keys are encrypted with
// the master key, which is not in the database.
//
// sealing.go is what writes of jobs need, credentials.go what attempts need, sessions.go what the pages need,
// payloads.go has the keys of package seal, and rotate.go replaces the keys.
package secrets

import (
	"golang.org/x/time/rate"

	"punctual/scheduler/credential"
	"punctual/store/cache"
	"punctual/store/pg"
	"punctual/store/seal"
	"punctual/store/vault"
)

// Secrets are the secrets of all tenants. Safe for concurrent use.
type Secrets struct {
	db          *pg.DB
	master      *vault.Master // nil: secrets can neither be read nor written
	keyring     keyring
	credentials *credentials
	unknownKeys *rate.Limiter // how often OpenSession looks for data keys that it does not know
	payloads    *payloadKeys
}

// New returns the secrets of a database. Without a master key they can neither be read nor written.
func New(db *pg.DB, master *vault.Master) *Secrets {
	s := &Secrets{db: db, master: master, unknownKeys: rate.NewLimiter(1, 1), credentials: &credentials{
		secrets: cache.New[secretRef, credential.Secret](mostSecrets, openBytes),
		signing: cache.New[int32, []credential.SigningKey](mostSigners, openBytes),
		blocks:  map[int32]bool{},
	}}
	s.payloads = &payloadKeys{secrets: s, asked: rate.NewLimiter(1, 10)}
	return s
}

// PayloadKeys are the keys with which payloads are sealed.
func (s *Secrets) PayloadKeys() seal.Keys { return s.payloads }
