package oidctest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-jose/go-jose/v4"
)

// SignIn says how the issuer signs people in. It asks nobody for a password: whoever comes is alice.
type SignIn struct {
	Client   string // the client id that it knows
	Secret   string // of the client; empty: a public client
	Redirect string // the only URL to which it sends people back

	Access  map[string]any // claims of access tokens that differ from those of Claims
	ID      map[string]any // the same of ID tokens, such as another nonce
	Opaque  bool           // access tokens are no JWTs
	Refuse  string         // the error with which it sends people back, such as access_denied
	Refresh bool           // it gives refresh tokens, each of which works once
	Asks    bool           // it shows a page with a button, from which people go back
}

// desk is what the issuer knows of people who sign in.
type desk struct {
	SignIn
	codes     map[string]url.Values // requests of people, by the code that they went back with
	refreshes map[string]bool       // tokens that still work
	renewed   atomic.Int32
	given     []string // all codes and tokens
}

// SignsIn makes the issuer sign people in, or changes how it does so.
func (i *Issuer) SignsIn(how SignIn) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.desk.SignIn = how
	if i.desk.codes == nil {
		i.desk.codes, i.desk.refreshes = map[string]url.Values{}, map[string]bool{}
	}
}

// Revoke makes all refresh tokens cease to work.
func (i *Issuer) Revoke() {
	i.mu.Lock()
	defer i.mu.Unlock()
	clear(i.desk.refreshes)
}

// Renewed returns how often a refresh token was exchanged.
func (i *Issuer) Renewed() int { return int(i.desk.renewed.Load()) }

// Given returns all codes and tokens that people got, which nobody may log or show.
func (i *Issuer) Given() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.desk.given)
}

// authorize sends a visitor back with a code. A wrong request is answered here, as its redirect URL cannot be trusted.
func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	asked := r.URL.Query()
	if asked.Get("client_id") != i.desk.Client || asked.Get("redirect_uri") != i.desk.Redirect ||
		asked.Get("response_type") != "code" || asked.Get("code_challenge_method") != "S256" {
		http.Error(w, "a wrong request: "+r.URL.RawQuery, http.StatusBadRequest)
		return
	}
	if i.desk.Asks && r.Method == http.MethodGet {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!doctype html><title>Issuer</title><form method="post"><button>I am alice</button></form>`)
		return
	}
	back := url.Values{"state": {asked.Get("state")}}
	if i.desk.Refuse != "" {
		back.Set("error", i.desk.Refuse)
		back.Set("error_description", "said <b>no</b>")
	} else {
		code := rand.Text()
		i.desk.codes[code] = asked
		i.desk.given = append(i.desk.given, code)
		back.Set("code", code)
	}
	http.Redirect(w, r, i.desk.Redirect+"?"+back.Encode(), http.StatusFound)
}

// token exchanges a code, which works once, or a refresh token, which does too.
func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	client, secret, basic := r.BasicAuth()
	client, _ = url.QueryUnescape(client) // RFC 6749, section 2.3.1
	secret, _ = url.QueryUnescape(secret)
	if !basic {
		client, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	if client != i.desk.Client || secret != i.desk.Secret {
		refuse(w, http.StatusUnauthorized, "invalid_client")
		return
	}
	var nonce any
	switch r.PostFormValue("grant_type") {
	case "authorization_code":
		code := r.PostFormValue("code")
		asked, known := i.desk.codes[code]
		delete(i.desk.codes, code)
		proof := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if !known || asked.Get("redirect_uri") != r.PostFormValue("redirect_uri") ||
			asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(proof[:]) {
			refuse(w, http.StatusBadRequest, "invalid_grant")
			return
		}
		nonce = asked.Get("nonce")
	case "refresh_token":
		i.desk.renewed.Add(1)
		given := r.PostFormValue("refresh_token")
		if !i.desk.refreshes[given] {
			refuse(w, http.StatusBadRequest, "invalid_grant")
			return
		}
		delete(i.desk.refreshes, given)
	}
	answer(w, http.StatusOK, i.grant(nonce))
}

// grant returns the tokens of alice.
func (i *Issuer) grant(nonce any) map[string]any {
	sign := func(claims, more map[string]any) string {
		alter(claims, more)
		return Sign(i.t, jose.ES256, i.signers["k1"], "k1", claims)
	}
	given := map[string]any{
		"token_type": "Bearer", "access_token": "opaque-" + rand.Text(),
		"id_token": sign(i.Claims(map[string]any{"aud": i.desk.Client, "nonce": nonce}), i.desk.ID),
	}
	if !i.desk.Opaque {
		given["access_token"] = sign(i.Claims(map[string]any{"jti": rand.Text()}), i.desk.Access)
	}
	if i.desk.Refresh {
		token := rand.Text() + strings.Repeat("r", 500) // some are that long
		i.desk.refreshes[token] = true
		given["refresh_token"] = token
	}
	for _, name := range []string{"access_token", "id_token", "refresh_token"} {
		if token, ok := given[name].(string); ok {
			i.desk.given = append(i.desk.given, token)
		}
	}
	return given
}

func refuse(w http.ResponseWriter, status int, code string) {
	answer(w, status, map[string]any{"error": code})
}
