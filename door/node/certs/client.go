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

// dialTimeout and keepAlive are of the connections to the API server.
const (
	dialTimeout = 30 * time.Second
	keepAlive   = 30 * time.Second
)

// Client is a client certificate that is renewed before it ends. Connections that were made with an earlier one are
// closed then.
type Client struct {
	o       Options
	config  *rest.Config
	manager certificate.Manager
	cert    atomic.Pointer[tls.Certificate]
	failed  failures
	dialer  *connrotation.Dialer
	// get and dial are the same for all clients: transports are kept by them.
	get  transport.GetCertHolder
	dial transport.DialHolder
}

// NewClient makes the Client of a kubeconfig that Bootstrap has written, which config was read from. It is nil for a
// kubeconfig of another's, whose certificate is the business of whoever made it.
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
	c.manager, err = manage(s, &c.failed, certificatesv1.KubeAPIServerClientKubeletSignerName, template, c.clientset)
	return c, err
}

// HTTP makes the client of a configuration, with the newest certificate in the place of its own.
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

// clientset is by what a certificate is asked for: by the one before, or as at the first start where that has ended.
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

// Expires is when the certificate does.
func (c *Client) Expires() time.Time { return expiry(c.cert.Load()) }

// RenewFailures is how often it could not be renewed.
func (c *Client) RenewFailures() uint64 { return c.failed.Load() }

// Run renews the certificate until ctx ends.
func (c *Client) Run(ctx context.Context) {
	c.manager.Start()
	<-ctx.Done()
	c.manager.Stop()
}
