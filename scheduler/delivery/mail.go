package delivery

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"net/netip"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"

	"punctual/scheduler/delivery/wire"
)

// MailConfig says how a [Mailer] reaches its mail server, and to whom it may write.
type MailConfig struct {
	// Server is smtp://user@host:587 or smtps://user@host:465. With smtp, STARTTLS is required, unless the host is this
	// machine or the query is starttls=off.
	Server   *url.URL
	Password string // in place of the password in Server
	From     *mail.Address
	// Domains are the domains that mail may go to; "*" stands for any. Default: the domain of From.
	Domains []string
	// Hello is the name by which this host greets the server. Strict relays refuse names that are no full ones, such as a
	// container's. Default: the domain of From.
	Hello   string
	RootCAs *x509.CertPool // verify the server; nil: the system's
}

// Mailer sends mail through the operator's mail server. A nil Mailer sends nothing.
type Mailer struct {
	config  MailConfig
	resolve func(address string) string // for tests: where to connect for an address
}

// NewMailer returns a mailer.
func NewMailer(c MailConfig) *Mailer {
	if len(c.Domains) == 0 {
		c.Domains = []string{domainOf(c.From.Address)}
	}
	c.Hello = cmp.Or(c.Hello, domainOf(c.From.Address))
	return &Mailer{config: c}
}

func domainOf(address string) string { return address[strings.LastIndex(address, "@")+1:] }

// Check reports why no mail may go to an address.
func (m *Mailer) Check(address string) error {
	if m == nil {
		return fmt.Errorf("%w: this deployment sends no e-mail; its operator can start it with --smtp-url", ErrBlockedAddress)
	}
	domain := domainOf(address)
	if slices.ContainsFunc(m.config.Domains, func(d string) bool { return d == "*" || strings.EqualFold(d, domain) }) {
		return nil
	}
	return fmt.Errorf("%w: e-mail may not go to the domain %s, only to %s; its operator can allow more with "+
		"--smtp-allow-domains", ErrBlockedAddress, domain, strings.Join(m.config.Domains, ", "))
}

// Mail is a message in plain text.
type Mail struct {
	To      string
	Subject string
	Text    string
	ID      string // makes the Message-ID, one for each attempt: what may have arrived is told anew
	Thread  string // mail with the same thread is shown as one conversation; empty: none
}

// Send sends a message, within timeout. Another attempt may follow unless the result is final.
func (m *Mailer) Send(ctx context.Context, message Mail, timeout time.Duration) wire.Result {
	if err := m.Check(message.To); err != nil {
		return wire.Result{Reason: wire.ReasonBlockedAddress, Error: oneLine(err.Error()), Final: true}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	sent, err := m.deliver(ctx, message, timeout)
	if err == nil {
		return wire.Result{Sent: true}
	}
	r := wire.Result{Sent: sent}
	var answer *textproto.Error
	switch {
	case errors.As(err, &answer):
		r.Reason = wire.ReasonMailRefused
		r.Error = oneLine(fmt.Sprintf("the mail server answered %d %s", answer.Code, answer.Msg))
		if r.Sent = !errors.Is(err, errNoSession); !r.Sent {
			r.Reason = wire.ReasonConnect
		}
		r.Final = r.Sent && answer.Code >= 500
	case errors.Is(ctx.Err(), context.DeadlineExceeded), isDeadline(err):
		r.Reason, r.Error = wire.ReasonTimeout, "the mail server did not answer within "+wire.Short(timeout)
	case ctx.Err() != nil:
		r.Cancelled, r.Error = true, "cancelled before the mail server had answered"
	default:
		r.Reason, r.Error = mailFault(err)
		r.Lacks = Shortage(err)
	}
	return r
}

// errNoSession says that the server did not get as far as the message.
var errNoSession = errors.New("no session with the mail server")

// mailFault says what is wrong with a session. The texts of the library name what the server lacks, such as STARTTLS.
func mailFault(err error) (wire.Reason, string) {
	var cert *tls.CertificateVerificationError
	var op net.Error
	if errors.As(err, &cert) {
		return wire.ReasonTLS, "no secure connection to the mail server: " + certificateText(cert.Err)
	}
	reason, text := classify(err, false)
	if text == notSent && !errors.As(err, &op) {
		text = oneLine(strings.TrimPrefix(err.Error(), errNoSession.Error()+": "))
	}
	return reason, "the mail server: " + text
}

// deliver does one session. sent is true if the server may have the message.
func (m *Mailer) deliver(ctx context.Context, message Mail, timeout time.Duration) (sent bool, err error) {
	written := m.write(message)
	session, err := m.dial(ctx, timeout)
	if err != nil {
		return false, fmt.Errorf("%w: %w", errNoSession, err)
	}
	defer session.Close()
	if err := session.Mail(m.config.From.Address); err != nil {
		return false, err
	}
	if err := session.Rcpt(message.To); err != nil {
		return false, err
	}
	data, err := session.Data()
	if err != nil {
		return false, err
	}
	if _, err := written.WriteTo(data); err != nil {
		return true, err
	}
	if err := data.Close(); err != nil {
		return true, err
	}
	_ = session.Quit() // the server has the message
	return true, nil
}

// write writes a message. The library encodes what is not plain in headers.
func (m *Mailer) write(message Mail) *gomail.Msg {
	written := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	written.FromMailAddress(m.config.From)
	written.ToMailAddress(&mail.Address{Address: message.To})
	written.Subject(oneLine(message.Subject))
	written.SetDateWithValue(time.Now())
	domain := domainOf(m.config.From.Address)
	written.SetMessageIDWithValue(message.ID + "@" + domain)
	if message.Thread != "" {
		root := "<" + notInID.ReplaceAllString(message.Thread, "-") + "@" + domain + ">"
		written.SetGenHeader(gomail.HeaderInReplyTo, root)
		written.SetGenHeader(gomail.HeaderReferences, root)
	}
	written.SetGenHeader("Auto-Submitted", "auto-generated") // so that nobody's absence is answered to it
	written.SetBodyString(gomail.TypeTextPlain, message.Text)
	return written
}

// notInID matches what the left side of a Message-ID does not hold.
var notInID = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// dial signs in at the server. The session ends with ctx.
func (m *Mailer) dial(ctx context.Context, timeout time.Duration) (*smtp.Client, error) {
	u := m.config.Server
	settings := &tls.Config{ServerName: u.Hostname(), RootCAs: m.config.RootCAs, MinVersion: tls.VersionTLS12}
	policy := gomail.TLSMandatory
	if u.Scheme == "smtps" || u.RawQuery != "" || local(u.Hostname()) {
		policy = gomail.TLSOpportunistic
	}
	port, _ := strconv.Atoi(u.Port())
	if port == 0 {
		port = map[string]int{"smtp": 587, "smtps": 465}[u.Scheme]
	}
	options := []gomail.Option{
		gomail.WithPort(port), gomail.WithTimeout(timeout), gomail.WithTLSPolicy(policy), gomail.WithTLSConfig(settings),
		gomail.WithHELO(m.config.Hello),
		gomail.WithDialContextFunc(func(dialing context.Context, network, address string) (net.Conn, error) {
			if m.resolve != nil {
				address = m.resolve(address)
			}
			conn, err := new(net.Dialer).DialContext(dialing, network, address)
			if err != nil {
				return nil, err
			}
			afterFunc(ctx, func() { _ = conn.Close() })
			if u.Scheme != "smtps" {
				return conn, nil
			}
			secure := tls.Client(conn, settings)
			if err := secure.HandshakeContext(dialing); err != nil {
				_ = conn.Close()
				return nil, &handshakeError{err}
			}
			return secure, nil
		}),
	}
	if u.User.Username() != "" {
		password, _ := u.User.Password()
		if m.config.Password != "" {
			password = m.config.Password
		}
		options = append(options, gomail.WithSMTPAuth(gomail.SMTPAuthAutoDiscover),
			gomail.WithUsername(u.User.Username()), gomail.WithPassword(password))
	}
	client, err := gomail.NewClient(u.Hostname(), options...)
	if err != nil {
		return nil, err
	}
	return client.DialToSMTPClientWithContext(ctx)
}

// local reports whether a host is this machine, to which mail needs no TLS.
func local(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}
