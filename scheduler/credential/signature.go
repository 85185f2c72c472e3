package credential

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"punctual/scheduler/delivery/wire"
)

// SigningKey signs callbacks according to Standard Webhooks, until it expires. Safe for concurrent use.
type SigningKey struct {
	states    *sync.Pool // of hash.Hash: HMAC states, which are costly to make
	ExpiresAt time.Time  // by the database's clock; zero: never
}

// SigningSecretPrefix begins every signing secret; the rest is base64.
const SigningSecretPrefix = "whsec_"

// NewSigningKey reads a signing secret of 24 to 64 bytes, as Standard Webhooks wants them.
func NewSigningKey(secret string, expiresAt time.Time) (SigningKey, error) {
	text, ok := strings.CutPrefix(secret, SigningSecretPrefix)
	raw, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(raw) < 24 || len(raw) > 64 {
		return SigningKey{}, fmt.Errorf("a signing secret is %s and 24 to 64 bytes in base64", SigningSecretPrefix)
	}
	return SigningKey{&sync.Pool{New: func() any { return hmac.New(sha256.New, raw) }}, expiresAt}, nil
}

// sign returns the signature of a message with an id, at a Unix time: version 1 of Standard Webhooks.
func (k SigningKey) sign(id, at string, body []byte) string {
	state, _ := k.states.Get().(hash.Hash)
	defer k.states.Put(state)
	state.Reset()
	_, _ = io.WriteString(state, id+"."+at+".") // a hash never fails
	_, _ = state.Write(body)
	var sum [sha256.Size]byte
	return "v1," + base64.StdEncoding.EncodeToString(state.Sum(sum[:0]))
}

// sign returns the headers that prove a request's sender, content and time: a signature by every live key.
func sign(keys []SigningKey, id string, now time.Time, body []byte) ([]wire.Header, error) {
	at := strconv.FormatInt(now.Unix(), 10)
	signatures := make([]string, 0, len(keys))
	for _, k := range keys {
		if !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt) {
			continue
		}
		signatures = append(signatures, k.sign(id, at, body))
	}
	if len(signatures) == 0 {
		return nil, authErrorf("the tenant has no live signing secret; create one with POST /v1/signing-secrets")
	}
	return []wire.Header{
		{Name: "Webhook-Timestamp", Value: at},
		{Name: "Webhook-Signature", Value: strings.Join(signatures, " ")},
	}, nil
}
