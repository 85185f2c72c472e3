package seal

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"

	"punctual/store/vault"
)

// The beginnings of what is not as it was given. No other value begins with prefix.
const (
	prefix  = "punctual-sealed-"
	sealed  = prefix + "1:"
	escaped = prefix + "0:"
	merged  = prefix + "m:"
)

// The kinds of payloads that are no JSON.
const text = 't'

// place is where a payload belongs: to no row, because SQL copies it from row to row.
func place(kind byte, length int) vault.Place {
	return vault.Place{Kind: "payload", Name: string(kind) + ":" + strconv.Itoa(length)}
}

// seal encrypts a payload.
func seal(key *vault.DataKey, kind byte, value []byte) ([]byte, error) {
	ciphertext, err := key.Seal(value, place(kind, len(value)))
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("%s%c:%d:%d:", sealed, kind, len(value), key.ID)
	return base64.RawURLEncoding.AppendEncode([]byte(head), ciphertext), nil
}

var errForm = errors.New("it is not a sealed value: it was changed or cut off")

// parts are those of a sealed value.
type parts struct {
	kind       byte
	length     int
	key        int64
	ciphertext []byte
}

// parse reads a sealed value, which begins with sealed.
func parse(token []byte) (p parts, err error) {
	fields := bytes.SplitN(token[len(sealed):], []byte(":"), 4)
	if len(fields) != 4 || len(fields[0]) != 1 {
		return p, errForm
	}
	p.kind = fields[0][0]
	if p.length, err = strconv.Atoi(string(fields[1])); err != nil {
		return p, errForm
	}
	if p.key, err = strconv.ParseInt(string(fields[2]), 10, 64); err != nil {
		return p, errForm
	}
	if p.ciphertext, err = base64.RawURLEncoding.AppendDecode(nil, fields[3]); err != nil {
		return p, errForm
	}
	return p, nil
}

// kindOf returns the kind of JSON.
func kindOf(raw []byte) byte {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	switch {
	case len(raw) == 0:
		return 'n'
	case raw[0] == '{':
		return 'o'
	case raw[0] == '[':
		return 'a'
	case raw[0] == '"':
		return 's'
	}
	return 'n'
}
