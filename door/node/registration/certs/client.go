package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/connrotation"

	"github.com/bulkhead-project/bulkhead/door/node/bounds"
)

// dialTimeout and keepAlive apply to connections to the API server.
const (
	dialTimeout = 30 * time.Second
	keepAlive   = 30 * time.Second
)

// Client is a client certificate that is renewed before it expires. A renewal closes the connections of the earlier
// certificate.
type Client struct {
	o       Options
	config  *rest.Config
	manager certificate.Manager
	cert    atomic.Pointer[tls.Certificate]
	failed  failures
	dialer  *connrotation.Dialer
	// get and dial are shared by all clients, because client-go caches transports by them.
	get  transport.GetCertHolder
	dial transport.DialHolder
}

// NewClient returns the Client for a kubeconfig that Bootstrap has written; config is read from it. For any other
// kubeconfig it returns nil, because its owner renews the certificate.
func NewClient(config *rest.Config, o Options) (*Client, error) {
	s, err := newStore(o.Dir, clientPair, o.Logger, nil)
	if err != nil {
		return nil, err
	}
	if config.CertFile != s.CurrentPath() {
		return nil, nil
	}
	c := &Client{o: o, config: rest.CopyConfig(config)}
	c.config.Wrap(bounds.Wrap)
	c.dialer = connrotation.NewDialer((&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext)
	c.get.GetCert, c.dial.Dial = c.newest, c.dialer.DialContext
	pair, err := s.current()
	if err != nil {
		return nil, fmt.Errorf("the node's certificate: %w", err)
	}
	c.cert.Store(pair)
	s.updated = func(pair *tls.Certificate) {
		c.cert.Store(pair)
		c.dialer.CloseAll()
	}
	template := &x509.CertificateRequest{Subject: subject(o.Node)}
	c.manager, err = newManager(s, &c.failed, certificatesv1.KubeAPIServerClientKubeletSignerName, template, c.clientset)
	return c, err
}

// HTTP returns the client of a configuration, with the newest certificate instead of the configuration's own.
func (c *Client) HTTP(config *rest.Config) (*http.Client, error) {
	t, err := config.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	t.TLS.CertFile, t.TLS.KeyFile, t.TLS.CertData, t.TLS.KeyData = "", "", nil, nil
	t.TLS.GetCertHolder, t.DialHolder = &c.get, &c.dial
	rt, err := transport.New(t)
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	return &http.Client{Transport: rt}, nil
}

func (c *Client) newest() (*tls.Certificate, error) {
	pair := c.cert.Load()
	if pair == nil {
		return nil, errors.New("the node has no certificate")
	}
	return pair, nil
}

// clientset returns the client for a renewal. It uses the earlier certificate, or the bootstrap kubeconfig if that
// certificate has expired.
func (c *Client) clientset(current *tls.Certificate) (kubernetes.Interface, error) {
	if current == nil && c.o.Bootstrap != "" {
		config, err := Kubeconfig(c.o.Bootstrap)
		if err != nil {
			return nil, fmt.Errorf("bootstrap-kubeconfig: %w", err)
		}
		config.Wrap(bounds.Wrap)
		return kubernetes.NewForConfig(config)
	}
	own, err := c.HTTP(c.config)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfigAndClient(c.config, own)
}

// Expires returns when the certificate expires.
func (c *Client) Expires() time.Time { return expiry(c.cert.Load()) }

// RenewFailures returns the number of failed renewals.
func (c *Client) RenewFailures() uint64 { return c.failed.Load() }

// Run renews the certificate until ctx ends.
func (c *Client) Run(ctx context.Context) {
	c.manager.Start()
	<-ctx.Done()
	c.manager.Stop()
}
