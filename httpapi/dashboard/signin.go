package dashboard

import (
	"crypto/subtle"
	"errors"
	"net/http"
	"time"

	"punctual/httpapi/auth"
	"punctual/httpapi/client"
	"punctual/httpapi/problem"
)

// Visitors may also sign in at the issuer of tokens (OpenID Connect). The session then holds a token of the issuer in
// place of a key. The API judges both, so what a token may do is decided there alone.

const (
	attemptCookie = "punctual-signin"
	attemptPath   = "/login"
	// attemptLife is how long a visitor may take at the issuer.
	attemptLife = 10 * time.Minute
	// longestNext bounds what the cookie of an attempt holds, as browsers drop large cookies without a word.
	longestNext = 1000
)

// attempt is what the browser keeps, encrypted, while its visitor is at the issuer.
type attempt struct {
	auth.Attempt
	Next  string    `json:"next"`
	Until time.Time `json:"until"`
}

// toIssuer sends a visitor to the issuer.
func (v *visit) toIssuer() error {
	if err := v.SignIn.Admit(v.r); err != nil {
		return err
	}
	a := attempt{auth.NewAttempt(), local(v.param("next")), time.Now().Add(attemptLife)}
	if len(a.Next) > longestNext {
		a.Next = "/"
	}
	to, err := v.SignIn.Begin(v.ctx(), a.Attempt)
	var sealed string
	if err == nil {
		sealed, err = v.sealed(a)
	}
	if err != nil {
		return v.notSignedIn(a.Next, err)
	}
	http.SetCookie(v.w, v.attemptCookie(sealed, int(attemptLife.Seconds())))
	return v.to(to, "")
}

// attemptCookie returns a cookie that a browser also sends when another site leads back here, as the issuer does. With
// SameSite=Strict it would not.
func (p *Pages) attemptCookie(value string, maxAge int) *http.Cookie {
	c := p.cookie(attemptCookie, value, maxAge) //nolint:gosec // Secure where the deployment is reached over HTTPS
	c.Path, c.SameSite = attemptPath, http.SameSiteLaxMode
	return c
}

// attempted returns the attempt of a visitor who comes back. Nobody else's is accepted: the cookie and the issuer's
// answer must have the same state.
func (v *visit) attempted() (a attempt, ok bool) {
	if !v.unsealed(attemptCookie, &a) || a.State == "" || time.Now().After(a.Until) {
		return attempt{}, false
	}
	return a, subtle.ConstantTimeCompare([]byte(v.param("state")), []byte(a.State)) == 1
}

// fromIssuer signs in a visitor whom the issuer has sent back.
func (v *visit) fromIssuer() error {
	a, ok := v.attempted()
	if !ok {
		return v.showSignIn(http.StatusBadRequest, signInForm{
			Next: "/",
			AtIssuer: "This sign-in was not begun in this browser, has taken too long, or was begun again in another tab. " +
				"Sign in again, at " + v.SignIn.Home() + ".",
		})
	}
	if err := v.SignIn.Admit(v.r); err != nil { // whoever has an attempt could send made-up codes at will
		return err
	}
	http.SetCookie(v.w, v.attemptCookie("", -1)) // an attempt counts once
	s, err := v.finish(a)
	if err == nil {
		err = v.remember(s)
	}
	if err != nil {
		return v.notSignedIn(a.Next, err)
	}
	// A redirect would go on with a navigation that another site began, and without the session's cookie, which is
	// SameSite=Strict. A page that goes on by itself begins a navigation of its own.
	return v.show("onward", "Signed in", local(a.Next))
}

// finish returns the session of a visitor whom the issuer has sent back.
func (v *visit) finish(a attempt) (session, error) {
	if code := v.param("error"); code != "" {
		return session{}, &auth.RefusedError{Code: problem.Clip(code)}
	}
	grant, err := v.SignIn.Finish(v.ctx(), a.Attempt, v.param("code"))
	if err != nil {
		return session{}, err
	}
	s, err := v.accepted(grant)
	if err == nil && time.Now().After(s.end()) { // the API allows for clocks that differ a little
		err = errEnded
	}
	return s, err
}

// errNoToken says that the issuer gave no JWT.
var errNoToken = errors.New("no token that the API could accept")

// accepted returns a session with the first token of a grant that the API accepts. Otherwise its error is the API's,
// the one that says most.
func (v *visit) accepted(grant auth.Grant) (session, error) {
	refusal := errNoToken
	for _, token := range grant.Tokens {
		s := session{
			Credential: token.Raw, Expires: token.Expires, Refresh: grant.Refresh, Until: time.Now().Add(sessionLife),
		}
		_, err := client.Caller.Do(v.ctx(), v.calls(s), nil)
		switch {
		case err == nil:
			return s, nil
		case client.Is(err, problem.CodeForbidden): // a good token, which lacks something that the answer names
			if !client.Is(refusal, problem.CodeForbidden) {
				refusal = err
			}
		case !client.Is(err, problem.CodeUnauthenticated):
			return session{}, err
		}
	}
	return session{}, refusal
}

// notSignedIn shows the page that signs in, with why the issuer's way has failed.
func (v *visit) notSignedIn(next string, err error) error {
	form, status := signInForm{Next: next}, http.StatusForbidden
	var refused *auth.RefusedError
	switch {
	case errors.As(err, &refused):
		form.AtIssuer = v.SignIn.Host() + " has not signed you in: " + refused.Code + "."
	case errors.Is(err, errNoToken):
		form.AtIssuer = "The API accepts none of the tokens that " + v.SignIn.Host() + " gives to these pages. It expects " +
			v.SignIn.Expected() + "."
	case errors.Is(err, errEnded):
		form.AtIssuer = "The token that " + v.SignIn.Host() + " gives to these pages has ended already: do the clocks differ?"
	case errors.Is(err, errTooLarge):
		form.AtIssuer = "The token that " + v.SignIn.Host() + " gives to these pages is too large for a browser's cookie. " +
			"Let the issuer leave out claims, such as long lists of groups."
	case client.Is(err, problem.CodeForbidden):
		form.AtIssuer = problemOf(err).Detail + " The API expects " + v.SignIn.Expected() + "."
	case problemOf(err).Code == problem.CodeIssuer:
		form.AtIssuer, status = problemOf(err).Detail, http.StatusServiceUnavailable
	default:
		return err
	}
	return v.showSignIn(status, form)
}
