package scheduler

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"punctual/scheduler/delivery"
)

// SigningKey signs callbacks according to Standard Webhooks, until it expires.
type SigningKey struct {
	webhook   *standardwebhooks.Webhook
	ExpiresAt time.Time // by the database's clock; zero: never
}

// SigningSecretPrefix begins every signing secret; the rest is base64.
const SigningSecretPrefix = "whsec_"

// NewSigningKey reads a signing secret of 24 to 64 bytes. The library would accept any length, even zero.
func NewSigningKey(secret string, expiresAt time.Time) (SigningKey, error) {
	text, ok := strings.CutPrefix(secret, SigningSecretPrefix)
	raw, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(raw) < 24 || len(raw) > 64 {
		return SigningKey{}, fmt.Errorf("a signing secret is %s and 24 to 64 bytes in base64", SigningSecretPrefix)
	}
	webhook, err := standardwebhooks.NewWebhookRaw(raw)
	if err != nil {
		return SigningKey{}, fmt.Errorf("reading a signing secret: %w", err)
	}
	return SigningKey{webhook, expiresAt}, nil
}

// sign returns the headers that prove a request's sender, content and time: a signature by every live key.
func sign(keys []SigningKey, id string, now time.Time, body []byte) ([]delivery.Header, error) {
	signatures := make([]string, 0, len(keys))
	for _, k := range keys {
		if !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt) {
			continue
		}
		signature, err := k.webhook.Sign(id, now, body)
		if err != nil {
			return nil, fmt.Errorf("signing a callback: %w", err)
		}
		signatures = append(signatures, signature)
	}
	if len(signatures) == 0 {
		return nil, authErrorf("the tenant has no live signing secret; create one with POST /v1/signing-secrets")
	}
	return []delivery.Header{
		{Name: "Webhook-Timestamp", Value: strconv.FormatInt(now.Unix(), 10)},
		{Name: "Webhook-Signature", Value: strings.Join(signatures, " ")},
	}, nil
}
