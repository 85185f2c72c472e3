package command

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"punctual/store"
	"punctual/store/vault"
)

// Secrets encrypts all secrets with a new data key.
type Secrets struct {
	Rotate rotate `cmd:"" help:"Encrypt all secrets with a new data key, and drop the old one. Replicas keep running; it may be interrupted and repeated."`
}

type rotate struct {
	database
	masterKey
	NewMasterKeyFile string `type:"path" placeholder:"FILE" help:"Encrypt the data keys with the first key of this file from now on. Give every replica a file with both keys before, and with only the new key after."`
}

func (c *rotate) Run(ctx context.Context, log *slog.Logger) error {
	master, err := c.read()
	if err != nil {
		return err
	}
	var next *vault.Master
	if c.NewMasterKeyFile != "" {
		if next, err = (masterKey{c.NewMasterKeyFile}).read(); err != nil {
			return fmt.Errorf("--new-master-key-file: %w", err)
		}
	}
	options := c.on(store.Options{MaxConns: 4, Log: log, Master: master})
	return naming(onDatabase(ctx, options, func(db *store.Store) error {
		done, err := db.Secrets.RotateSecrets(ctx, next)
		if err != nil {
			return fmt.Errorf("secrets rotate: %w", err)
		}
		log.Info("secrets rotated", "data_key", done.Key, "encrypted_anew", done.Values, "keys_dropped", done.Dropped)
		return nil
	}))
}

// masterKey holds the master key, which encrypts the data keys of secrets. No flag holds the key itself: other users
// could read it in the list of processes.
type masterKey struct {
	MasterKeyFile string `type:"path" placeholder:"FILE" help:"File with the master key that encrypts secrets, and payloads where they are to be encrypted. Give every replica the same. The key is 32 bytes in base64, as printed by 'openssl rand -base64 32'. Further lines may hold earlier keys: the first key encrypts, all of them decrypt. Alternative: the key itself in PUNCTUAL_MASTER_KEY."`
}

// ifGiven returns the master key; nil: none was given.
func (m masterKey) ifGiven() (*vault.Master, error) {
	if m.MasterKeyFile == "" && os.Getenv("PUNCTUAL_MASTER_KEY") == "" {
		return nil, nil //nolint:nilnil // a command that can do without
	}
	return m.read()
}

// read returns the master key. If none was given, its error says how to make one.
func (m masterKey) read() (*vault.Master, error) {
	from, text := "PUNCTUAL_MASTER_KEY", os.Getenv("PUNCTUAL_MASTER_KEY")
	if m.MasterKeyFile != "" {
		raw, err := os.ReadFile(m.MasterKeyFile)
		if err != nil {
			return nil, fmt.Errorf("--master-key-file: %w", err)
		}
		from, text = "--master-key-file "+m.MasterKeyFile, string(raw)
	}
	if text == "" && m.MasterKeyFile == "" {
		return nil, fmt.Errorf("--master-key-file: no master key is given. It encrypts secrets and, "+
			"with --encrypt-payloads, payloads, and is not in the database. "+
			"Create one with `%s > punctual.key`, store it as safely as a backup, "+
			"and give it to every replica: --master-key-file punctual.key", vault.MakeMasterKey)
	}
	master, err := vault.ParseMaster(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	return master, nil
}
