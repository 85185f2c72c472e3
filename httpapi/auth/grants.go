package auth

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"punctual/httpapi/problem"
)

// Grant is what the issuer gives.
type Grant struct {
	Tokens  []Token // that the API may accept: the access token if it is a JWT, then the ID token
	Refresh string  // gets the next grant; may be empty
}

// Token is a JWT. What it says is not verified here: the API does that with every request.
type Token struct {
	Raw     string
	Subject string
	Expires time.Time
}

// RefusedError says that the issuer refuses a code or a refresh token, or has answered with an unfit ID token.
type RefusedError struct{ Code string }

func (e *RefusedError) Error() string { return "the issuer refuses: " + e.Code }

// away is the answer while the issuer cannot be asked.
func (s *SignIn) away(ctx context.Context, err error) error {
	if s.tokens.fetches.news(err) {
		s.Log.WarnContext(ctx, "sign-in at the issuer does not work; the next visitor who signs in tries again",
			"issuer", s.Issuer, "error", err)
	}
	return problem.New(problem.CodeIssuer, s.Host()+" cannot be reached right now, or does not answer as it should. "+
		"Try again later, or sign in with an API key.")
}

// refusal tells an issuer that refuses from one that is away. It logs what the issuer says, without the secrets that
// it was asked with.
func (s *SignIn) refusal(ctx context.Context, err error, secrets ...string) error {
	answered, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return s.away(ctx, err)
	}
	// The body is left out: whatever it is, it may hold a token.
	status := answered.Response.StatusCode
	if answered.ErrorCode == "" || status == http.StatusTooManyRequests || status >= http.StatusInternalServerError {
		return s.away(ctx, fmt.Errorf("its token endpoint answers %s", answered.Response.Status))
	}
	why := answered.ErrorDescription
	for _, secret := range append(secrets, s.ClientSecret) {
		if secret != "" {
			why = strings.ReplaceAll(why, secret, "***")
		}
	}
	level := slog.LevelWarn
	if answered.ErrorCode == "invalid_grant" { // also when somebody has signed out at the issuer
		level = slog.LevelInfo
	}
	s.Log.Log(ctx, level, "the issuer refuses a code or a refresh token", "issuer", s.Issuer,
		"code", problem.Clip(answered.ErrorCode), "says", problem.Clip(why))
	return &RefusedError{problem.Clip(answered.ErrorCode)}
}

func (s *SignIn) unfit(ctx context.Context, why string) error {
	s.Log.WarnContext(ctx, "an answer of the issuer is refused", "issuer", s.Issuer, "why", why, "client_id", s.ClientID)
	return &RefusedError{why}
}

// grantOf returns what the token endpoint gave.
func grantOf(given *oauth2.Token) Grant {
	g := Grant{Refresh: given.RefreshToken}
	id, _ := given.Extra("id_token").(string)
	for _, raw := range []string{given.AccessToken, id} {
		if t := peek(raw); t.Raw != "" {
			g.Tokens = append(g.Tokens, t)
		}
	}
	return g
}

// peek returns what a JWT says, without verifying it; nothing if it is none.
func peek(raw string) Token {
	parts := strings.Split(raw, ".")
	if len(parts) != 3 {
		return Token{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return Token{}
	}
	var said struct {
		Subject string  `json:"sub"`
		Expires float64 `json:"exp"`
	}
	if json.Unmarshal(payload, &said) != nil {
		return Token{}
	}
	return Token{Raw: raw, Subject: said.Subject, Expires: time.Unix(int64(min(said.Expires, 1<<40)), 0)}
}
