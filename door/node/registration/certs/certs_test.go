package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/bulkhead-project/bulkhead/door/node/bounds"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/trusted"
)

// bootstrapConf names a server that no test reaches.
const bootstrapConf = `{apiVersion: v1, kind: Config, current-context: c,
  clusters: [{name: k, cluster: {server: "https://192.0.2.1:6443", certificate-authority: ca.crt}}],
  users: [{name: u, user: {token: secret}}], contexts: [{name: c, context: {cluster: k, user: u}}]}`

func options(t *testing.T) (Options, *store, *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	var logged bytes.Buffer
	o := Options{
		Kubeconfig: filepath.Join(dir, "node.conf"), Bootstrap: filepath.Join(t.TempDir(), "bootstrap.conf"), Dir: dir, Node: "n",
		Logger: slog.New(slog.NewTextHandler(&logged, nil)),
	}
	write(t, o.Bootstrap, []byte(bootstrapConf))
	write(t, filepath.Join(filepath.Dir(o.Bootstrap), "ca.crt"), newAuthority(t).pem())
	s, err := newStore(dir, clientPair, o.Logger, nil)
	if err != nil {
		t.Fatal(err)
	}
	return o, s, &logged
}

// TestRequest checks that a certificate is requested as by a kubelet, retried after a failure, and stored with a
// private kubeconfig. A denied request is an error and removes the key.
func TestRequest(t *testing.T) {
	a := newAuthority(t)
	for name, tt := range map[string]struct {
		fail   error // of the first request
		decide string
		err    string
	}{
		"signed":                  {nil, "sign", ""},
		"after an error":          {apierrors.NewInternalError(errors.New("broken")), "sign", ""},
		"after a conflict":        {apierrors.NewConflict(certificatesv1.Resource("certificatesigningrequests"), "n", nil), "sign", ""},
		"after too many requests": {apierrors.NewTooManyRequests("busy", 1), "sign", ""},
		"after a refusal":         {apierrors.NewForbidden(certificatesv1.Resource("certificatesigningrequests"), "n", nil), "sign", ""},
		"after silence":           {bounds.ErrLate, "sign", ""},
		"denied":                  {nil, "deny", "denied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, s, logged := options(t)
			api := newSigner(t, a, func(int) string { return tt.decide })
			fail := tt.fail
			api.PrependReactor("create", "certificatesigningrequests", func(clienttesting.Action) (bool, runtime.Object, error) {
				err := fail
				fail = nil
				return err != nil, nil, err
			})
			err := o.request(testdeadline.Context(t, 30*time.Second), api, s)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%v, want %s", err, tt.err)
				}
				if left, _ := os.ReadDir(o.Dir); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			asked := api.requests()[0].Spec
			if asked.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName || len(asked.Usages) != 2 {
				t.Errorf("requests %+v", asked)
			}
			if err := o.write(s); err != nil {
				t.Fatal(err)
			}
			noKeys(t, o.Dir, logged)
			config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
			if err != nil || config.Host != "https://192.0.2.1:6443" || config.BearerToken != "" || config.CertFile != s.CurrentPath() ||
				config.CAFile != filepath.Join(filepath.Dir(o.Bootstrap), "ca.crt") {
				t.Errorf("kubeconfig: %+v, %v", config, err)
			}
			pair, err := s.Current()
			if err != nil || pair.Leaf.Subject.String() != "CN=system:node:n,O=system:nodes" {
				t.Errorf("%v, %v", pair, err)
			}
			if valid, err := o.valid(s); !valid || err != nil {
				t.Errorf("valid: %v, %v", valid, err)
			}
		})
	}
}

// TestRequestAgain checks that a process that stops while waiting leaves its key, and that the next one waits for the
// same request.
func TestRequestAgain(t *testing.T) {
	o, s, _ := options(t)
	a := newAuthority(t)
	asked := make(chan struct{}, 2)
	api := newSigner(t, a, func(int) string { asked <- struct{}{}; return "" })
	ctx, cancel := context.WithCancel(testdeadline.Context(t, 30*time.Second))
	ended := make(chan error)
	go func() { ended <- o.request(ctx, api, s) }()
	<-asked
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended: %v", err)
	}
	ctx = testdeadline.Context(t, 30*time.Second)
	watches := api.watches()
	go func() { ended <- o.request(ctx, api, s) }()
	<-asked
	<-watches // the fake client does not report changes between its list and its watch
	csrs := api.CertificatesV1().CertificateSigningRequests()
	list, err := csrs.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%d requests, %v", len(list.Items), err)
	}
	handle(t, a, &list.Items[0], "sign")
	if _, err := csrs.UpdateStatus(ctx, &list.Items[0], metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(o.Dir, "*.new")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestBootstrapNeedless checks that a valid kubeconfig, and one of another owner, is left alone.
func TestBootstrapNeedless(t *testing.T) {
	o, s, _ := options(t)
	a := newAuthority(t)
	if valid, err := o.valid(s); valid || err != nil {
		t.Errorf("no kubeconfig: %v, %v", valid, err)
	}
	for _, tt := range []struct {
		name  string
		ends  time.Duration
		valid bool
	}{{"expired", -time.Minute, false}, {"valid", time.Hour, true}} {
		cert, key := a.issue(t, "system:node:n", time.Now().Add(tt.ends))
		if _, err := s.Update(cert, key); err != nil {
			t.Fatal(err)
		}
		if err := o.write(s); err != nil {
			t.Fatal(err)
		}
		if valid, err := o.valid(s); valid != tt.valid || err != nil {
			t.Errorf("%s: %v, %v", tt.name, valid, err)
		}
	}
	write(t, o.Kubeconfig, []byte(bootstrapConf))
	write(t, filepath.Join(o.Dir, "ca.crt"), a.pem())
	if err := Bootstrap(t.Context(), o); err != nil {
		t.Errorf("kubeconfig of another owner: %v", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := NewClient(config, o); c != nil || err != nil {
		t.Errorf("the certificate of another owner is renewed: %v, %v", c, err)
	}
}

// TestClientRotates checks that a new certificate closes the connections of the earlier one and removes its key.
func TestClientRotates(t *testing.T) {
	o, s, _ := options(t)
	a := newAuthority(t)
	cert, key := a.issue(t, "first", time.Now().Add(time.Hour))
	if _, err := s.Update(cert, key); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	conns := map[string]bool{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		conns[r.RemoteAddr] = true
		mu.Unlock()
		fmt.Fprint(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	write(t, o.Kubeconfig, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c,
  clusters: [{name: k, cluster: {server: %q, insecure-skip-tls-verify: true}}], contexts: [{name: c, context: {cluster: k, user: u}}],
  users: [{name: u, user: {client-certificate: %s, client-key: %s}}]}`, server.URL, s.CurrentPath(), s.CurrentPath()))
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(config, o)
	if err != nil || c == nil {
		t.Fatalf("%v, %v", c, err)
	}
	hc, err := c.HTTP(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := testdeadline.Context(t, 30*time.Second)
	ask := func(want string) {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := hc.Do(req)
		for errors.Is(err, net.ErrClosed) { // the transport has not noticed the closed connection yet
			resp, err = hc.Do(req)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var got bytes.Buffer
		if _, err := got.ReadFrom(resp.Body); err != nil || got.String() != want {
			t.Errorf("client %q, want %q: %v", &got, want, err)
		}
	}
	ask("first")
	ask("first")
	cert, key = a.issue(t, "second", time.Now().Add(time.Hour))
	renewed := *s
	renewed.updated = func(pair *tls.Certificate) { c.cert.Store(pair); c.dialer.CloseAll() }
	if _, err := renewed.Update(cert, key); err != nil {
		t.Fatal(err)
	}
	ask("second")
	mu.Lock()
	defer mu.Unlock()
	if len(conns) != 2 {
		t.Errorf("%d connections", len(conns))
	}
	all, err := filepath.Glob(filepath.Join(o.Dir, clientPair+"-[0-9]*"))
	if err != nil || len(all) != 1 {
		t.Errorf("pairs: %q, %v", all, err)
	}
}

// TestServingFiles checks that the server follows its files, and keeps the earlier certificate while they do not match.
func TestServingFiles(t *testing.T) {
	dir := t.TempDir()
	a, other := newAuthority(t), newAuthority(t)
	crt, key, ca := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(t.TempDir(), "ca.crt")
	put := func(name string) {
		c, k := a.issue(t, name, time.Now().Add(time.Hour))
		write(t, crt, c)
		write(t, key, k)
	}
	put("one")
	write(t, ca, a.pem())
	s, err := NewServing(ServingOptions{Node: "n", IP: "127.0.0.1", Cert: crt, Key: key, ClientCA: ca, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if got := served(t, s); got != "one" {
		t.Errorf("served %s", got)
	}
	put("two") // before the watch
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	eventually(t, "a change before the watch", func() bool { return served(t, s) == "two" })
	write(t, crt, []byte("torn"))
	write(t, ca, []byte("torn"))
	put("three")
	write(t, ca, other.pem())
	eventually(t, "the third", func() bool { return served(t, s) == "three" })
	pool := x509.NewCertPool()
	pool.AddCert(other.cert)
	eventually(t, "the authority", func() bool { return s.Clients().Equal(pool) })
	cancel()
	<-ended
	write(t, crt, []byte("torn"))
	if _, err := NewServing(s.o); err == nil {
		t.Error("an invalid certificate is served")
	}
}

// TestServingAsks checks that a self-signed certificate is used until the requested one is signed, and that the next
// process uses the signed one at once.
func TestServingAsks(t *testing.T) {
	dir := t.TempDir()
	var logged bytes.Buffer
	a := newAuthority(t)
	may := make(chan struct{})
	api := newSigner(t, a, func(int) string { <-may; return "sign" })
	o := ServingOptions{Node: "n", IP: "127.0.0.1", Rotate: true, Client: api, Dir: dir, Logger: slog.New(slog.NewTextHandler(&logged, nil))}
	s, err := NewServing(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	if got := served(t, s); got != "n" {
		t.Errorf("served %s", got)
	}
	close(may)
	eventually(t, "the certificate", func() bool { return served(t, s) == "system:node:n" })
	asked := api.requests()[0].Spec
	if asked.SignerName != certificatesv1.KubeletServingSignerName {
		t.Errorf("requests %+v", asked)
	}
	cancel()
	<-ended
	if s, err = NewServing(o); err != nil || served(t, s) != "system:node:n" {
		t.Errorf("the next process: %v", err)
	}
	noKeys(t, dir, &logged)
}

// TestUntrusted checks that a kubeconfig or key that other users can change is refused.
func TestUntrusted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	write(t, file, []byte(bootstrapConf))
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Kubeconfig(file); !errors.Is(err, trusted.ErrUntrusted) {
		t.Errorf("kubeconfig: %v", err)
	}
	o := ServingOptions{Node: "n", IP: "127.0.0.1", Logger: slog.New(slog.DiscardHandler)}
	for name, change := range map[string]func(*ServingOptions){
		"key":         func(o *ServingOptions) { o.Cert, o.Key = file, file },
		"authorities": func(o *ServingOptions) { o.ClientCA = file },
	} {
		of := o
		change(&of)
		if _, err := NewServing(of); !errors.Is(err, trusted.ErrUntrusted) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
