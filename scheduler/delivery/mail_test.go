package delivery

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http/httptest"
	netmail "net/mail"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"punctual/scheduler/delivery/wire"
)

// mailServer is an SMTP server that keeps what it gets. It fails as the local part of a recipient says.
type mailServer struct {
	addr  string
	roots *x509.CertPool

	mu     sync.Mutex
	got    []string
	hellos []string // the names that it was greeted by
}

func newMailServer(t *testing.T, implicit bool) *mailServer {
	t.Helper()
	holder := httptest.NewTLSServer(nil) // for its certificate, of 127.0.0.1 and example.com
	holder.Close()
	m := &mailServer{roots: x509.NewCertPool()}
	m.roots.AddCert(holder.Certificate())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.addr = listener.Addr().String()
	s := smtp.NewServer(m)
	s.Domain, s.TLSConfig = "example.com", &tls.Config{Certificates: holder.TLS.Certificates}
	s.ErrorLog = discard{}
	if implicit {
		listener = tls.NewListener(listener, s.TLSConfig)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(listener) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return m
}

type discard struct{}

func (discard) Printf(string, ...any) {}
func (discard) Println(...any)        {}

func (m *mailServer) NewSession(c *smtp.Conn) (smtp.Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hellos = append(m.hellos, c.Hostname())
	return &mailSession{server: m, conn: c}, nil
}

type mailSession struct {
	server *mailServer
	conn   *smtp.Conn
	to     string
	signed bool
}

func (s *mailSession) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *mailSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if s.signed = user == "punctual" && password == "right"; s.signed {
			return nil
		}
		return &smtp.SMTPError{Code: 535, EnhancedCode: smtp.EnhancedCode{5, 7, 8}, Message: "no"}
	}), nil
}

func (s *mailSession) Reset()        {}
func (s *mailSession) Logout() error { return nil }

func (s *mailSession) Mail(string, *smtp.MailOptions) error {
	if !s.signed {
		return smtp.ErrAuthRequired
	}
	return nil
}

func (s *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to = to
	switch strings.Split(to, "@")[0] {
	case "r421":
		return &smtp.SMTPError{Code: 421, Message: "closing"}
	case "r450":
		return &smtp.SMTPError{Code: 450, Message: "greylisted"}
	case "r550":
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such user"}
	case "cut":
		_ = s.conn.Conn().Close()
	}
	return nil
}

func (s *mailSession) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	switch strings.Split(s.to, "@")[0] {
	case "d451":
		return &smtp.SMTPError{Code: 451, Message: "try later"}
	case "d554":
		return &smtp.SMTPError{Code: 554, Message: "spam"}
	case "dcut":
		_ = s.conn.Conn().Close()
	case "hang":
		_, _ = io.Copy(io.Discard, s.conn.Conn()) // until the client goes
	}
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.server.got = append(s.server.got, string(raw))
	return nil
}

func (m *mailServer) mails() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.got...)
}

// mailer signs in with a password. The name that the server is called by is not one of this machine's for policy.
func (m *mailServer) mailer(t *testing.T, scheme, password string) *Mailer {
	t.Helper()
	u, err := wire.CheckMailServer(scheme + "://punctual@" + m.addr)
	if err != nil {
		t.Fatal(err)
	}
	return NewMailer(MailConfig{
		Server: u, Password: password, RootCAs: m.roots,
		From: &netmail.Address{Name: "Punctual", Address: "punctual@example.com"},
	})
}

func TestMailArrives(t *testing.T) {
	for _, scheme := range []string{"smtp", "smtps"} {
		server := newMailServer(t, scheme == "smtps")
		mailer := server.mailer(t, scheme, "right")
		r := mailer.Send(t.Context(), Mail{
			To: "ops@example.com", Subject: "Job é\r\nBcc: all@example.net\r\n\r\nis failing", Text: "line\n.\nnext",
			ID: "019ad98a", Thread: "host:a>\r\nX-Evil: 1",
		}, 30*time.Second)
		if !r.OK() || !r.Sent {
			t.Fatalf("%s: %+v", scheme, r)
		}
		mails := server.mails()
		if len(mails) != 1 {
			t.Fatalf("%s: %d mails", scheme, len(mails))
		}
		mail, err := netmail.ReadMessage(strings.NewReader(mails[0]))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(mail.Body)
		if err != nil || strings.TrimRight(string(body), "\r\n") != "line\r\n.\r\nnext" {
			t.Errorf("%s: %q, %v", scheme, body, err)
		}
		for name, want := range map[string]string{
			"From": `"Punctual" <punctual@example.com>`, "To": "<ops@example.com>", "Message-Id": "<019ad98a@example.com>",
			"References": "<host-a-X-Evil-1@example.com>", "In-Reply-To": "<host-a-X-Evil-1@example.com>",
			"Auto-Submitted": "auto-generated", "Bcc": "", "X-Evil": "",
		} {
			if got := mail.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", scheme, name, got, want)
			}
		}
	}
}

// A strict relay refuses the short name of a container.
func TestAMailServerIsGreetedByAFullName(t *testing.T) {
	server := newMailServer(t, false)
	mailer := server.mailer(t, "smtp", "right")
	for _, hello := range []string{"", "jobs.example.net", "[192.0.2.1]"} {
		again := NewMailer(mailer.config)
		if hello != "" {
			again.config.Hello = hello
		}
		if r := again.Send(t.Context(), Mail{To: "ops@example.com"}, 30*time.Second); !r.OK() {
			t.Fatalf("%q: %+v", hello, r)
		}
		server.mu.Lock()
		last := server.hellos[len(server.hellos)-1]
		server.mu.Unlock()
		if want := cmp.Or(hello, "example.com"); last != want {
			t.Errorf("greeted by %q, want %q", last, want)
		}
	}
}

func TestAMailServerSaysWhatBecomesOfAMail(t *testing.T) {
	server := newMailServer(t, false)
	mailer := server.mailer(t, "smtp", "right")
	for to, want := range map[string]wire.Result{
		"r421": {Reason: wire.ReasonMailRefused, Sent: true}, "r450": {Reason: wire.ReasonMailRefused, Sent: true},
		"r550": {Reason: wire.ReasonMailRefused, Sent: true, Final: true}, "d451": {Reason: wire.ReasonMailRefused, Sent: true},
		"d554": {Reason: wire.ReasonMailRefused, Sent: true, Final: true}, "cut": {Reason: wire.ReasonConnect},
		"dcut": {Reason: wire.ReasonConnect, Sent: true},
	} {
		got := mailer.Send(t.Context(), Mail{To: to + "@example.com", Subject: "s", ID: "id"}, 30*time.Second)
		if got.Reason != want.Reason || got.Sent != want.Sent || got.Final != want.Final || got.Error == "" {
			t.Errorf("%s: %+v", to, got)
		}
		if strings.HasPrefix(to, "r") && !strings.Contains(got.Error, to[1:]) {
			t.Errorf("%s: %s", to, got.Error)
		}
	}
	if got := mailer.Send(t.Context(), Mail{To: "hang@example.com", ID: "id"}, time.Second); got.Reason != wire.ReasonTimeout {
		t.Errorf("a server that is silent: %+v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := mailer.Send(ctx, Mail{To: "ops@example.com", ID: "id"}, 30*time.Second); !got.Cancelled {
		t.Errorf("cancelled: %+v", got)
	}
}

func TestNoMailWithoutASession(t *testing.T) {
	server := newMailServer(t, false)
	mail := Mail{To: "ops@example.com", ID: "id"}
	for name, c := range map[string]struct {
		mailer *Mailer
		reason wire.Reason
		text   string
	}{
		"a wrong password": {server.mailer(t, "smtp", "wrong"), wire.ReasonConnect, "535"},
		"an unknown certificate": {func() *Mailer {
			m := server.mailer(t, "smtp", "right")
			m.config.RootCAs = x509.NewCertPool()
			return m
		}(), wire.ReasonTLS, "authority"},
		"no TLS there": {server.mailer(t, "smtps", "right"), wire.ReasonTLS, "does not speak TLS"},
		"nothing there": {
			NewMailer(MailConfig{
				Server: &url.URL{Scheme: "smtp", Host: "127.0.0.1:1"}, From: &netmail.Address{Address: "a@example.com"},
			}), wire.ReasonConnect, "refused",
		},
		"no mail server configured": {nil, wire.ReasonBlockedAddress, "--smtp-url"},
		"a domain of nobody here": {
			NewMailer(MailConfig{From: &netmail.Address{Address: "a@b.example"}}), wire.ReasonBlockedAddress, "b.example",
		},
	} {
		got := c.mailer.Send(t.Context(), mail, 30*time.Second)
		if got.Reason != c.reason || got.Sent || !strings.Contains(got.Error, c.text) ||
			got.Final != (c.reason == wire.ReasonBlockedAddress) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if mails := server.mails(); len(mails) > 0 {
		t.Errorf("%q", mails)
	}
}

// A server that offers no STARTTLS gets neither the password nor the mail, unless it is this machine.
func TestMailNeedsTLS(t *testing.T) {
	server := newMailServer(t, false)
	plain := smtp.NewServer(server)
	plain.Domain, plain.AllowInsecureAuth, plain.ErrorLog = "example.com", true, discard{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = plain.Serve(listener) }()
	t.Cleanup(func() { _ = plain.Close() })
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	mail := Mail{To: "ops@example.com", ID: "id"}
	m := NewMailer(MailConfig{
		Server: &url.URL{Scheme: "smtp", Host: "localtest.example:" + port, User: url.UserPassword("punctual", "right")},
		From:   &netmail.Address{Address: "a@example.com"},
	})
	m.resolve = func(string) string { return listener.Addr().String() }
	got := m.Send(t.Context(), mail, 30*time.Second)
	if got.OK() || !strings.Contains(got.Error, "STARTTLS") {
		t.Errorf("%+v", got)
	}
	if mails := server.mails(); len(mails) > 0 {
		t.Errorf("%q", mails)
	}
}
