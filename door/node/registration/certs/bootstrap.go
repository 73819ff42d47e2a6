package certs

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"

	"github.com/bulkhead-project/bulkhead/door/node/bounds"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/retry"
	"github.com/bulkhead-project/bulkhead/internal/trusted"
)

// pauses are the pauses between failed requests.
var pauses = retry.Pauses{First: time.Second, Last: time.Minute}

// Options configure the node's client certificate. Bootstrap may be empty if the Kubeconfig exists.
type Options struct {
	// Kubeconfig is the node's file. Bootstrap is the kubeconfig for the first request of a certificate. Dir is the
	// directory of certificates.
	Kubeconfig, Bootstrap, Dir string
	// Node is the node's name.
	Node   string
	Logger *slog.Logger
}

// Bootstrap creates the node's kubeconfig if it does not exist or its certificate has expired. It requests a
// certificate with the bootstrap kubeconfig and waits for the signature until ctx ends. A denied request is an error.
// The key of an unfinished request stays on disk, so that the next process waits for the same request.
func Bootstrap(ctx context.Context, o Options) error {
	if o.Bootstrap == "" {
		return nil
	}
	s, err := newStore(o.Dir, clientPair, o.Logger, nil)
	if err != nil {
		return err
	}
	valid, err := o.valid(s)
	if err != nil || valid {
		return err
	}
	config, err := Kubeconfig(o.Bootstrap)
	if err != nil {
		return fmt.Errorf("bootstrap-kubeconfig: %w", err)
	}
	config.Wrap(bounds.Wrap)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("bootstrap-kubeconfig: %w", err)
	}
	o.Logger.Info("requesting a certificate for the node", "server", config.Host)
	if err := o.request(ctx, client, s); err != nil {
		return err
	}
	return o.write(s)
}

// valid reports whether the kubeconfig is usable. A kubeconfig without the store's certificate belongs to its owner and
// counts as valid.
func (o *Options) valid(s *store) (bool, error) {
	_, err := os.Stat(o.Kubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("kubeconfig: %w", err)
	}
	config, err := Kubeconfig(o.Kubeconfig)
	if err != nil {
		return false, fmt.Errorf("kubeconfig: %w", err)
	}
	if config.CertFile != s.CurrentPath() {
		return true, nil
	}
	pair, err := s.current()
	if err != nil {
		return false, fmt.Errorf("kubeconfig: %w", err)
	}
	return pair != nil && time.Now().Before(pair.Leaf.NotAfter), nil
}

// request retries until a certificate is signed or denied.
func (o *Options) request(ctx context.Context, client kubernetes.Interface, s *store) error {
	path := filepath.Join(o.Dir, clientPair+".key.new")
	var failed error // and not to be retried
	err := pauses.Until(ctx, nil, func() error {
		key, pem, err := pending(path)
		if err != nil {
			failed = err
			return nil //nolint:nilerr // it ends the tries
		}
		signed, final, err := o.once(ctx, client, key)
		switch {
		case err == nil:
			if _, err := s.Update(signed, pem); err != nil {
				failed = fmt.Errorf("keep the node's certificate: %w", err)
			} else {
				failed = os.Remove(path)
			}
		case final:
			failed = fmt.Errorf("request the node's certificate: %w", errors.Join(err, os.Remove(path)))
		default:
			return err
		}
		return nil
	}, func(err error) { o.Logger.Warn("requesting the node's certificate failed, retrying", "error", err) })
	if err != nil { // ctx has ended
		return fmt.Errorf("request the node's certificate: %w", context.Cause(ctx))
	}
	return failed
}

// pending returns the key of an earlier unfinished request, or a new key.
func pending(path string) (key crypto.Signer, pem []byte, err error) {
	pem, _, err = keyutil.LoadOrGenerateKeyFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("key of the node's certificate: %w", err)
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(pem)
	if err != nil {
		return nil, nil, fmt.Errorf("key of the node's certificate in %s: %w", path, err)
	}
	key, is := parsed.(crypto.Signer)
	if !is {
		return nil, nil, fmt.Errorf("key of the node's certificate in %s: it must be a key that can sign", path)
	}
	return key, pem, nil
}

// once sends the request for a key, unless it exists already, and waits for its certificate. final reports an error
// that will not pass.
func (o *Options) once(ctx context.Context, client kubernetes.Interface, key crypto.Signer) (signed []byte, final bool, err error) {
	request, err := cert.MakeCSRFromTemplate(key, &x509.CertificateRequest{Subject: subject(o.Node)})
	if err != nil {
		return nil, true, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, true, err
	}
	sum := sha256.Sum256(append(public, o.Node...))
	name := "node-csr-" + hex.EncodeToString(sum[:])
	made, uid, err := csr.RequestCertificateWithContext(ctx, client, request, name,
		certificatesv1.KubeAPIServerClientKubeletSignerName, nil, certificate.DefaultKubeletClientGetUsages(key), key)
	if err != nil {
		return nil, false, err
	}
	o.Logger.Info("waiting for the node's certificate (approve the request if your cluster does not do so)", "request", made)
	signed, err = csr.WaitForCertificate(ctx, client, made, uid)
	return signed, err != nil && ctx.Err() == nil, err
}

// Kubeconfig reads a kubeconfig. The file, and the files that it names, must be trusted.
func Kubeconfig(path string) (*rest.Config, error) {
	if err := trusted.Files(path); err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	return config, trusted.Files(config.CAFile, config.CertFile, config.KeyFile, config.BearerTokenFile)
}

// write writes the kubeconfig, with the cluster of the bootstrap kubeconfig and the certificate of the store.
func (o *Options) write(s *store) error {
	raw, err := (&clientcmd.ClientConfigLoadingRules{ExplicitPath: o.Bootstrap}).Load()
	if err != nil {
		return fmt.Errorf("bootstrap-kubeconfig: %w", err)
	}
	at := raw.Contexts[raw.CurrentContext]
	if at == nil || raw.Clusters[at.Cluster] == nil {
		return errors.New("bootstrap-kubeconfig: its current context has no cluster")
	}
	const name = "node"
	out := clientcmdapi.NewConfig()
	out.Clusters[name] = raw.Clusters[at.Cluster]
	out.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificate: s.CurrentPath(), ClientKey: s.CurrentPath()}
	out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	out.CurrentContext = name
	text, err := clientcmd.Write(*out)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if err := atomicfile.Write(o.Kubeconfig, text, 0o600, atomicfile.Durable); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	return nil
}
