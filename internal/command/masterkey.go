package command

import (
	"fmt"
	"os"

	"punctual/store/vault"
)

// masterKey holds the master key, which encrypts the data keys of secrets. No flag holds the key itself: other users
// could read it in the list of processes.
type masterKey struct {
	MasterKeyFile string `type:"path" placeholder:"FILE" help:"File with the master key that encrypts secrets. Give every replica the same. The key is 32 bytes in base64, as printed by 'openssl rand -base64 32'. Further lines may hold earlier keys: the first key encrypts, all of them decrypt. Alternative: the key itself in PUNCTUAL_MASTER_KEY."`
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
		return nil, fmt.Errorf("--master-key-file: no master key is given. It encrypts secrets and is not in the database. "+
			"Make one with `%s > punctual.key`, store it as safely as a backup, "+
			"and give it to every replica: --master-key-file punctual.key", vault.MakeMasterKey)
	}
	master, err := vault.ParseMaster(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	return master, nil
}
