package credential

import (
	"context"
	"crypto/tls"
	"crypto/x509"

	"punctual/scheduler/delivery"
	"punctual/scheduler/jobspec"
)

// mostTLSClients bounds how many clients with TLS settings of their own a replica keeps; each has its own connections.
// One that is pushed out loses the connections that no attempt is using.
const mostTLSClients = 256

// tlsKey names what a client was built from. A new value of a secret leads to a new client.
type tlsKey struct {
	tenant          int32
	certificate, ca Revision
}

// tlsClient returns the client that connects as t says.
func (s *Sender) tlsClient(ctx context.Context, tenant int32, t jobspec.TLS) (*delivery.Client, error) {
	certificate, err := s.named(ctx, tenant, t.ClientCertificate)
	if err != nil {
		return nil, err
	}
	ca, err := s.named(ctx, tenant, t.CA)
	if err != nil {
		return nil, err
	}
	key := tlsKey{tenant, certificate.Revision, ca.Revision}
	if client, ok := s.tls.Get(key); ok {
		return client, nil
	}
	certificates, roots, err := readTLS(t, certificate.Value, ca.Value)
	if err != nil {
		return nil, err
	}
	client := s.client.WithTLS(certificates, roots)
	if first, ok, _ := s.tls.PeekOrAdd(key, client); ok { // another attempt was faster
		return first, nil
	}
	return client, nil
}

// named returns the secret with a name, and an empty one for an empty name.
func (s *Sender) named(ctx context.Context, tenant int32, name string) (Secret, error) {
	if name == "" {
		return Secret{}, nil
	}
	return s.secrets.NamedSecret(ctx, tenant, name)
}

// readTLS reads the PEM of a target's secrets. Its errors repeat nothing of it.
func readTLS(t jobspec.TLS, certificate, ca string) (certificates []tls.Certificate, roots *x509.CertPool, err error) {
	if t.ClientCertificate != "" {
		pair, err := tls.X509KeyPair([]byte(certificate), []byte(certificate))
		if err != nil {
			return nil, nil, authErrorf("secret %q does not hold a certificate chain and its key in PEM", t.ClientCertificate)
		}
		certificates = append(certificates, pair)
	}
	if t.CA != "" {
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM([]byte(ca)) {
			return nil, nil, authErrorf("secret %q holds no certificate in PEM", t.CA)
		}
	}
	return certificates, roots, nil
}
