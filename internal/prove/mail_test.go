//prove:other

package prove

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"mime"
	"mime/quotedprintable"
	"net/http/httptest"
	"net/mail"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// mailServer is aiosmtpd, as Debian packages it. It demands STARTTLS and a password, and prints what it takes.
const mailServer = `
import asyncio, json, ssl, sys
from aiosmtpd.smtp import SMTP, AuthResult

def sign_in(server, session, envelope, mechanism, data):
    return AuthResult(success=(data.login, data.password) == (b"punctual", b"right"))

class Handler:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("nobody@"):
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        print(json.dumps({"from": envelope.mail_from, "to": envelope.rcpt_tos, "tls": session.ssl is not None,
            "signed_in": session.authenticated, "text": envelope.content.decode()}), flush=True)
        return "250 OK"

async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1], sys.argv[2])
    server = await asyncio.get_running_loop().create_server(lambda: SMTP(Handler(), hostname="localhost",
        require_starttls=True, tls_context=context, auth_required=True, authenticator=sign_in), "127.0.0.1", 0)
    print(json.dumps({"address": "127.0.0.1:%d" % server.sockets[0].getsockname()[1]}), flush=True)
    await server.serve_forever()

asyncio.run(main())
`

// sentMail is a mail that the server took.
type sentMail struct {
	Address  string
	From     string
	To       []string
	TLS      bool
	SignedIn bool `json:"signed_in"`
	Text     string
}

// startMailServer starts it. It returns its address, a file with its certificate, and what it has taken.
func startMailServer(t *testing.T) (address, ca string, mails func() []sentMail) {
	t.Helper()
	installed := pgtest.Program(t, "apt-get install python3-aiosmtpd", "aiosmtpd", "/usr/bin/aiosmtpd")
	first, _, _ := strings.Cut(readFile(t, installed), "\n")
	dir := t.TempDir()
	holder := httptest.NewTLSServer(nil) // for its certificate, of 127.0.0.1
	holder.Close()
	key, err := x509.MarshalPKCS8PrivateKey(holder.TLS.Certificates[0].PrivateKey)
	must(t, err)
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, text, 0o600))
		return path
	}
	ca = write("cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: holder.Certificate().Raw}))
	p, err := process.Launch(strings.TrimSpace(strings.TrimPrefix(first, "#!")), nil, write("server.py", []byte(mailServer)), ca,
		write("key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
	must(t, err)
	t.Cleanup(p.Kill)
	read := func() (all []sentMail) {
		for line := range strings.Lines(p.Output()) {
			var m sentMail
			if json.Unmarshal([]byte(line), &m) == nil {
				all = append(all, m)
			}
		}
		return all
	}
	await(t, "the mail server to listen", func() bool { return len(read()) > 0 })
	return read()[0].Address, ca, func() []sentMail { return read()[1:] }
}

// A job dies and recovers. A real server delivers both mails in one conversation.
//
// To each recipient, over STARTTLS, with a password.
func TestMailIsDeliveredByARealServer(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	address, ca, mails := startMailServer(t)
	password := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(password, []byte("right\n"), 0o600))
	r := serve(t, dsn, "--smtp-url=smtp://punctual@"+address, "--smtp-password-file="+password, "--target-ca-file="+ca,
		"--smtp-from=Punctual é <punctual@example.com>", "--notice-labels=team", "--public-url=https://punctual.example.com")
	conn := connect(t, dsn)
	w.Script("/work", Answer{Status: 500, Body: "é is broken"}, Answer{})
	on := []string{"dead", "recovered"}
	notify := []any{}
	for _, to := range []string{"ops", "team", "nobody"} {
		notify = append(notify, map[string]any{"on": on, "format": "email", "to": to + "@example.com"})
	}
	create(t, r.API, job("fragile", w.URL+"/work", process.JobSpec{
		"retry": map[string]any{"max_attempts": 1}, "labels": map[string]string{"team": "money"},
		"runbook": "https://wiki.example.com/fragile", "notify": notify,
	}))
	awaitMails := func(n int) {
		t.Helper()
		await(t, "the mails", func() bool {
			execute(t, conn, `UPDATE punctual.outbox SET held_until = now()
				WHERE held_until < now() + interval '30 s'`) // but not while a message is under way
			return len(mails()) >= n
		})
	}
	triggerTo(t, r.API, "dead", "fragile")
	awaitMails(2)
	triggerTo(t, r.API, "succeeded", "fragile")
	awaitMails(4)
	var threads []string
	told := map[string][]string{}
	for _, m := range mails() {
		if m.From != "punctual@example.com" || len(m.To) != 1 || !m.TLS || !m.SignedIn {
			t.Errorf("%+v", m)
			continue
		}
		read, err := mail.ReadMessage(strings.NewReader(m.Text))
		must(t, err)
		subject, err := new(mime.WordDecoder).DecodeHeader(read.Header.Get("Subject"))
		must(t, err)
		from, err := read.Header.AddressList("From")
		must(t, err)
		if len(from) != 1 || from[0].Name != "Punctual é" || read.Header.Get("To") != "<"+m.To[0]+">" ||
			read.Header.Get("Message-Id") == "" || read.Header.Get("Date") == "" ||
			read.Header.Get("Auto-Submitted") != "auto-generated" {
			t.Errorf("the headers are %v", read.Header)
		}
		threads = append(threads, read.Header.Get("References"))
		told[m.To[0]] = append(told[m.To[0]], subject)
		if len(told[m.To[0]]) > 1 {
			continue
		}
		text := mailText(t, read)
		for _, want := range []string{
			"http_5xx", "é is broken", "team: money", "runbook: https://wiki.example.com/fragile",
			"https://punctual.example.com/jobs/fragile",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in %s", want, text)
			}
		}
	}
	for _, to := range []string{"ops@example.com", "team@example.com"} {
		if !slices.Equal(told[to], []string{
			"Job fragile has dead runs (tenant default)", "Job fragile recovered (tenant default)",
		}) {
			t.Errorf("%s was told %q", to, told[to])
		}
	}
	if len(slices.Compact(threads)) != 1 || threads[0] == "" {
		t.Errorf("trouble and recovery are not one conversation: %q", threads)
	}
	stop(t, r)
}

// mailText returns the text of a mail, decoded.
func mailText(t *testing.T, m *mail.Message) string {
	t.Helper()
	reader := m.Body
	if m.Header.Get("Content-Transfer-Encoding") == "quoted-printable" {
		reader = quotedprintable.NewReader(m.Body)
	}
	text, err := io.ReadAll(reader)
	must(t, err)
	return string(text)
}
