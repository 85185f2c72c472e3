package delivery

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	"punctual/scheduler/delivery/wire"
)

// classifyStatus returns the reason and text for a status; both are empty for 2xx.
func classifyStatus(status int) (wire.Reason, string) {
	switch status / 100 {
	case 2:
		return "", ""
	case 3:
		if status == http.StatusNotModified {
			return wire.ReasonRedirect, "the target answered 304 (not modified), which is not a success"
		}
		return wire.ReasonRedirect, fmt.Sprintf("the target answered %d; redirects are not followed", status)
	case 4:
		return wire.ReasonHTTP4xx, fmt.Sprintf("the target answered %d", status)
	case 5:
		return wire.ReasonHTTP5xx, fmt.Sprintf("the target answered %d", status)
	}
	return wire.ReasonConnect, fmt.Sprintf("the target answered %d, which ends no HTTP exchange", status)
}

// failed is the result of an exchange that broke off with err.
func (x *attempt) failed(err error) wire.Result {
	res := wire.Result{Sent: x.sent()}
	switch {
	case x.left():
		res.Cancelled, res.Error = true, "cancelled before the answer was complete"
		return res
	case x.over(), x.conn != nil && isDeadline(err):
		res.Reason, res.Error = wire.ReasonTimeout, x.timeoutText()
		return res
	}
	res.Reason, res.Error = classify(err, res.Sent)
	var through *proxyError
	if res.Proxy = errors.As(err, &through); !res.Sent {
		res.Lacks = Shortage(err)
	}
	return res
}

func (x *attempt) timeoutText() string {
	within := " within " + wire.Short(x.timeout)
	switch {
	case x.conn == nil:
		missing, _ := x.missing.Load().(string)
		return cmp.Or(missing, wire.MissingConnection) + within
	case x.conn.heard:
		return "the answer was not complete" + within
	}
	return "no answer" + within
}

// byWhom says what the system refused, and for which address, as far as that is known.
func byWhom(errno syscall.Errno, op *net.OpError) string {
	switch {
	case op == nil || op.Addr == nil:
		return errno.Error()
	case errno == syscall.ECONNREFUSED:
		return "connection refused by " + op.Addr.String()
	case errno == syscall.ECONNRESET:
		return "connection reset by " + op.Addr.String()
	}
	return op.Addr.String() + ": " + errno.Error()
}

// classify returns the reason and text for an error. The texts are Punctual's own, because those of the standard
// library quote resolver addresses and what the target sent.
func classify(err error, sent bool) (wire.Reason, string) {
	var (
		handshake *handshakeError
		through   *proxyError
		tunnel    *tunnelError
		answered  *faultError
		dns       *net.DNSError
		op        *net.OpError
		errno     syscall.Errno
	)
	switch {
	case errors.Is(err, ErrBlockedAddress):
		if errors.As(err, &op) {
			err = op.Err
		}
		return wire.ReasonBlockedAddress, oneLine(err.Error())
	case errors.As(err, &through):
		return wire.ReasonConnect, through.text
	case errors.As(err, &tunnel):
		return wire.ReasonConnect, tunnel.text
	case errors.As(err, &answered):
		return wire.ReasonConnect, answered.text
	case errors.As(err, &handshake):
		return wire.ReasonTLS, "no secure connection: " + handshakeText(handshake.err)
	case errors.As(err, &op) && op.Op == remoteAlert: // TLS 1.3 refuses a client only after its handshake
		return wire.ReasonTLS, "the target refused the secure connection: " + oneLine(op.Err.Error())
	case errors.As(err, &dns) && dns.IsNotFound:
		return wire.ReasonConnect, "the host's name does not resolve"
	case errors.As(err, &dns):
		return wire.ReasonConnect, "the host's name cannot be resolved right now"
	case errors.As(err, &errno):
		errors.As(err, &op)
		return wire.ReasonConnect, byWhom(errno, op)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return wire.ReasonConnect, "the target closed the connection before its answer was complete"
	case isDeadline(err):
		return wire.ReasonConnect, wire.MissingConnection + " within " + wire.Short(connectTimeout)
	case sent:
		return wire.ReasonConnect, notHTTP
	}
	return wire.ReasonConnect, notSent
}

const notSent = "the request could not be sent"

// remoteAlert is the Op that crypto/tls puts on an alert from the peer; the alert's own type is not exported.
const remoteAlert = "remote error"

// noProtocol is the text of the alert of a target that does not speak HTTP/1.1, which is all that is offered.
const noProtocol = "tls: no application protocol"

func handshakeText(err error) string {
	var (
		cert   *tls.CertificateVerificationError
		record tls.RecordHeaderError
		op     *net.OpError
		errno  syscall.Errno
	)
	switch {
	case errors.As(err, &cert):
		return certificateText(cert.Err)
	case errors.As(err, &record):
		return "the target does not speak TLS on this port"
	case errors.As(err, &op) && op.Op == remoteAlert && op.Err.Error() == noProtocol:
		return onlyHTTP2
	case errors.As(err, &op) && op.Op == remoteAlert:
		return oneLine(op.Err.Error())
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the target closed the connection during the handshake"
	case isDeadline(err):
		return wire.MissingHandshake + " within " + wire.Short(connectTimeout)
	}
	return "the handshake failed"
}

func certificateText(err error) string {
	var (
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
		invalid x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &unknown):
		return "the certificate is signed by an unknown authority"
	case errors.As(err, &host):
		return "the certificate is not for host " + oneLine(host.Host)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the certificate has expired or is not yet valid"
	}
	return "the certificate is not valid"
}

func isDeadline(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// maxForeign bounds a text of foreign origin in an error, in bytes.
const maxForeign = 200

// oneLine makes a text of foreign origin short, printable and valid UTF-8.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > maxForeign {
		s = strings.ToValidUTF8(s[:maxForeign], "")
	}
	return s
}
