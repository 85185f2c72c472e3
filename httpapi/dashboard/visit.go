package dashboard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"punctual/httpapi"
	"punctual/httpapi/auth"
	"punctual/httpapi/client"
	"punctual/httpapi/problem"
)

// visit is one request of a browser, with the API as the visitor may use it.
type visit struct {
	*Pages
	w       http.ResponseWriter
	r       *http.Request
	session session
	api     *client.Client
	caller  httpapi.Caller

	position string // of the visitor's last write: what it reads has to see that

	zoneOfJob string // of the job that the page is about; empty: of none
}

// open returns the handler of a page that needs no session.
func (p *Pages) open(show func(*visit) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := &visit{Pages: p, w: w, r: r}
		v.recall()
		if err := show(v); err != nil {
			v.fail(err)
		}
	}
}

// page returns the handler of a page. It asks visitors to sign in who have no session.
func (p *Pages) page(show func(*visit) error) http.HandlerFunc {
	return p.open(func(v *visit) error {
		s, signedIn := v.kept()
		if !signedIn && !p.NoAuth {
			return v.toSignIn()
		}
		var err error
		if v.session, err = v.renewed(s); errors.Is(err, errEnded) {
			return v.toSignIn()
		} else if err != nil {
			return err
		}
		v.api = v.calls(v.session)
		if v.caller, err = call(v, client.Caller, nil); client.Is(err, problem.CodeUnauthenticated) {
			v.forget()
			return v.toSignIn()
		} else if err != nil {
			return err
		}
		return show(v)
	})
}

// calls returns the API as the visitor of a request may use it with a session.
func (v *visit) calls(s session) *client.Client {
	api := client.Through("http://"+v.r.Host, inside{v.Pages.api, v, v.w.Header().Get(problem.HeaderRequestID)})
	if s.Credential != "" {
		api = api.WithKey(s.Credential)
	}
	if s.Tenant != "" {
		api = api.WithHeader(auth.HeaderTenant, s.Tenant)
	}
	return api
}

// call calls the API as the visitor may use it.
func call[In, Out any](v *visit, of client.Call[In, Out], in In, names ...string) (Out, error) {
	return of.Do(v.ctx(), v.api, in, names...)
}

// optionalWithin is how long a page waits for a part without which it is of use, too.
const optionalWithin = 2 * time.Second

var errUnread = errors.New("a part of the page was not read in time")

// optional calls the API for such a part. If it takes too long, the error is errUnread.
func optional[In, Out any](v *visit, of client.Call[In, Out], in In, names ...string) (Out, error) {
	limited, cancel := context.WithTimeout(v.ctx(), optionalWithin)
	defer cancel()
	out, err := of.Do(limited, v.api, in, names...)
	if err != nil && limited.Err() != nil && v.ctx().Err() == nil {
		err = errUnread
	}
	return out, err
}

func (v *visit) ctx() context.Context { return v.r.Context() }

// part returns a part of the path, such as the job of /jobs/{job}.
func (v *visit) part(name string) string {
	text := chi.URLParam(v.r, name)
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}

// param returns a parameter of the query.
func (v *visit) param(name string) string { return v.r.URL.Query().Get(name) }

// mostForm bounds what a form may hold, in bytes: a definition fits.
const mostForm = 1 << 20

// withForm reads the form of a request first.
func withForm(do func(*visit) error) func(*visit) error {
	return func(v *visit) error {
		v.r.Body = http.MaxBytesReader(v.w, v.r.Body, mostForm)
		err := v.r.ParseForm()
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			return problem.New(problem.CodeTooLarge, "The form is larger than 1 MiB.")
		}
		if err != nil {
			return problem.New(problem.CodeMalformed, "The form cannot be read: "+err.Error()+".")
		}
		return do(v)
	}
}

// field returns a field of the form.
func (v *visit) field(name string) string { return strings.TrimSpace(v.r.PostFormValue(name)) }

// ofJob reads the job that the path is about first.
func ofJob(show func(*visit, httpapi.Job) error) func(*visit) error {
	return func(v *visit) error {
		job, err := call(v, client.Job, nil, v.part("job"))
		if err != nil {
			return err
		}
		v.zoneOfJob = zoneOf(job.Schedule)
		return show(v, job)
	}
}

// may reports whether the visitor's role includes another.
func (v *visit) may(role auth.Role) bool { return v.caller.Role.Includes(role) }

// needs refuses a form that the visitor's role may not send, before the visitor fills it in.
func (v *visit) needs(role auth.Role, doing string) error {
	if v.may(role) {
		return nil
	}
	return problem.New(problem.CodeForbidden,
		fmt.Sprintf("%s needs the role %s; you are signed in as %s.", doing, role, v.caller.Role))
}

// to sends the browser on to a page after a change, which then says what was done.
func (v *visit) to(path, said string) error {
	if said != "" {
		http.SetCookie(v.w, v.cookie(saidCookie, url.QueryEscape(said), 60))
	}
	http.Redirect(v.w, v.r, path, http.StatusSeeOther)
	return nil
}

// done sends the browser on after a change, unless it failed.
func (v *visit) done(err error, path, said string) error {
	if err != nil {
		return err
	}
	return v.to(path, said)
}

// said is what was done just now. A second line is the address of a form that makes up for what that left out.
type said struct{ Text, MakeUp string }

// said returns what was done just now, once.
func (v *visit) said() (s said) {
	c, err := v.r.Cookie(saidCookie)
	if err != nil {
		return s
	}
	http.SetCookie(v.w, v.cookie(saidCookie, "", -1))
	text, _ := url.QueryUnescape(c.Value)
	s.Text, s.MakeUp, _ = strings.Cut(text, "\n")
	if !strings.HasPrefix(s.MakeUp, "/jobs/") {
		s.MakeUp = ""
	}
	return s
}

// fail shows an error. One of the API keeps its status.
func (v *visit) fail(err error) {
	said := problemOf(err)
	if said.Status >= http.StatusInternalServerError {
		v.Log.ErrorContext(v.ctx(), "a page cannot be shown", "path", v.r.URL.Path, "error", err)
	}
	if err := v.render(said.Status, "error", said.Title, said); err != nil {
		http.Error(v.w, said.Detail, said.Status)
	}
}

// refused returns why the API refuses what was asked for, which the page then says; nil if it does not. The error is
// one that is not about the request.
func refused(err error) (*problem.Problem, error) {
	if err == nil {
		return nil, nil
	}
	if said := problemOf(err); said.Status < http.StatusInternalServerError {
		return said, nil
	}
	return nil, err
}

// problemOf returns what the API said, or a problem of the page itself.
func problemOf(err error) *problem.Problem {
	if answer, ok := errors.AsType[*client.Error](err); ok && answer.Problem != nil {
		return answer.Problem
	}
	if own, ok := errors.AsType[*problem.Problem](err); ok {
		return own
	}
	return problem.New(problem.CodeInternal, "The page cannot be shown; the log says why.")
}

// inside calls the API in this process, on behalf of a browser's request.
type inside struct {
	api http.Handler
	of  *visit
	id  string // of the browser's request
}

// RoundTrip implements http.RoundTripper.
func (t inside) RoundTrip(r *http.Request) (*http.Response, error) {
	// The router takes a context that it knows for its own, and would not look at the path again.
	inner := r.Clone(context.WithValue(r.Context(), chi.RouteCtxKey, nil))
	of := t.of.r
	inner.RemoteAddr, inner.Host, inner.TLS, inner.RequestURI = of.RemoteAddr, of.Host, of.TLS, r.URL.RequestURI()
	inner.Header.Set(problem.HeaderRequestID, t.id)
	if t.of.position != "" {
		inner.Header.Set(problem.HeaderPosition, t.of.position)
	}
	if inner.Body == nil {
		inner.Body = http.NoBody
	}
	a := &answer{header: http.Header{}, status: http.StatusOK}
	t.api.ServeHTTP(a, inner)
	if position := a.header.Get(problem.HeaderPosition); position != "" {
		t.of.wrote(position)
	}
	return &http.Response{
		Status: http.StatusText(a.status), StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header, Body: io.NopCloser(&a.body), ContentLength: int64(a.body.Len()), Request: r,
	}, nil
}

// answer is an answer of the API in this process.
type answer struct {
	header http.Header
	status int
	wrote  bool
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if !a.wrote {
		a.status, a.wrote = status, true
	}
}

func (a *answer) Write(part []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(part)
}

// local returns a path of this server; / if it leads anywhere else. Browsers take a backslash for a slash, and overlook
// tabs and line breaks: to them, a tab between two slashes is the address of another server.
func local(path string) string {
	strange := func(c rune) bool { return c == '\\' || c < ' ' || c == 0x7f }
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsFunc(path, strange) {
		return "/"
	}
	return path
}
