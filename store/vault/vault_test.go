package vault

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func master(t *testing.T, keys ...string) *Master {
	t.Helper()
	m, err := ParseMaster(strings.Join(keys, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestAnyMasterKeyOpensAndTheFirstSeals(t *testing.T) {
	t.Parallel()
	old, young := NewMasterKey(), NewMasterKey()
	key, err := NewDataKey()
	if err != nil {
		t.Fatal(err)
	}
	both := master(t, young, "", old)
	byOld, _ := master(t, old).Seal(key)
	byYoung, _ := both.Seal(key)
	for _, c := range []struct {
		name   string
		master *Master
		sealed []byte
		want   error
	}{
		{"its own", master(t, old), byOld, nil},
		{"either", both, byOld, nil},
		{"the first seals", master(t, young), byYoung, nil},
		{"another", master(t, NewMasterKey()), byOld, ErrMaster},
		{"the second does not seal", master(t, old), byYoung, ErrMaster},
		{"cut off", both, byOld[:len(byOld)-1], ErrMaster},
	} {
		opened, err := c.master.Open(key.ID, c.sealed)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil && opened.ID != key.ID {
			t.Errorf("%s: id %d, want %d", c.name, opened.ID, key.ID)
		}
	}
	if _, err := both.Open(key.ID+1, byOld); !errors.Is(err, ErrMaster) {
		t.Errorf("under another id: %v", err)
	}
}

func TestACiphertextOpensWhereItStandsOnly(t *testing.T) {
	t.Parallel()
	key, err := NewDataKey()
	if err != nil {
		t.Fatal(err)
	}
	at := Place{7, "secret", "a"}
	sealed, err := key.Seal([]byte("value"), at)
	if err != nil {
		t.Fatal(err)
	}
	if value, err := key.Open(sealed, at); err != nil || string(value) != "value" {
		t.Fatalf("%q, %v", value, err)
	}
	if bytes.Contains(sealed, []byte("value")) {
		t.Error("it is not encrypted")
	}
	for _, elsewhere := range []Place{{8, "secret", "a"}, {7, "job secret", "a"}, {7, "secret", "b"}, {7, "secre", "ta"}} {
		if _, err := key.Open(sealed, elsewhere); !errors.Is(err, ErrCiphertext) {
			t.Errorf("it opens at %v: %v", elsewhere, err)
		}
	}
	sealed[len(sealed)-1] ^= 1
	if _, err := key.Open(sealed, at); !errors.Is(err, ErrCiphertext) {
		t.Errorf("changed: %v", err)
	}
}

func TestMasterKeysThatAreNone(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"empty": "", "no base64": "this is no key, is it?", "too short": "c2hvcnQ=",
		"the second": NewMasterKey() + "\nnonsense",
	} {
		_, err := ParseMaster(text)
		if err == nil || !strings.Contains(err.Error(), MakeMasterKey) {
			t.Errorf("%s: %v", name, err)
		}
		if text != "" && err != nil &&
			strings.Contains(err.Error(), strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])) {
			t.Errorf("%s: the error repeats it: %v", name, err)
		}
	}
}
