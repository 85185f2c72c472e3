package command

import (
	"fmt"
	"os"

	"punctual/store/vault"
)

// masterKey holds the master key, which encrypts the data keys of secrets. No flag holds the key itself: other users
// could read it in the list of processes.
type masterKey struct {
	MasterKeyFile string `type:"path" placeholder:"FILE" help:"File with the master key that secrets are encrypted under, the same on every replica: 32 bytes in base64, as 'openssl rand -base64 32' makes them. Further lines may hold earlier keys: any of them decrypts, the first one encrypts. Or give the key itself in PUNCTUAL_MASTER_KEY."`
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
		return nil, fmt.Errorf("--master-key-file: secrets are encrypted with a key that is not in the database, "+
			"and none was given. Make one with `%s > punctual.key`, keep it as you keep backups, "+
			"and give it to every replica: --master-key-file punctual.key", vault.MakeMasterKey)
	}
	master, err := vault.ParseMaster(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	return master, nil
}
