package node

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
)

// TestCertificates: a node without a kubeconfig requests its certificates. The standard controllers and an
// administrator approve them as docs/node.md describes. The node renews its client certificate.
func TestCertificates(t *testing.T) {
	w := newControlPlane(t)
	ctx := testdeadline.Context(t, 3*time.Minute)
	grants, shown, approve := documented(t)
	for _, grant := range grants {
		w.shell(ctx, t, grant)
	}
	dir := filepath.Join(w.Dir, "node")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	conf, pair := filepath.Join(dir, "node.conf"), filepath.Join(dir, "node-client-current.pem")
	serve := func() {
		w.serveAs(w.with(testkube.NodeName, w.documentedNode(t, "--bootstrap-kubeconfig", conf)...))
	}
	serve()
	w.up(ctx, t)
	for _, file := range []string{conf, pair} {
		if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, st, err)
		}
	}
	if n := w.countRequests(ctx, t, certificatesv1.KubeAPIServerClientKubeletSignerName, "bootstrap"); n != 1 {
		t.Errorf("%d requests for a client certificate", n)
	}
	node := "system:node:" + testkube.NodeName
	w.Wait(ctx, t, "the request for a serving certificate", func(ctx context.Context) error {
		if n := w.countRequests(ctx, t, certificatesv1.KubeletServingSignerName, node); n != 1 {
			return fmt.Errorf("%d requests", n)
		}
		return nil
	})
	name := w.request(ctx, t, certificatesv1.KubeletServingSignerName)
	var seen strings.Builder
	for _, command := range shown {
		seen.WriteString(w.shell(ctx, t, strings.ReplaceAll(command, "NAME", name)))
	}
	for _, want := range []string{name, node, "system:nodes", "CN = " + node, "DNS:" + testkube.NodeName, "IP Address:"} {
		if !strings.Contains(seen.String(), want) {
			t.Errorf("an administrator does not see %q: %s", want, seen.String())
		}
	}
	w.shell(ctx, t, strings.ReplaceAll(approve, "NAME", name))
	w.answers(ctx, t)
	w.node.Stop(t)
	ending, err := w.Ending(node, "system:nodes", testdeadline.For(2*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	current, err := os.Readlink(pair)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(current, ending, 0o600); err != nil {
		t.Fatal(err)
	}
	serve()
	w.Wait(ctx, t, "the certificate to be renewed", func(context.Context) error {
		text, err := os.ReadFile(pair)
		if err != nil {
			return err
		}
		block, _ := pem.Decode(text)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err == nil && time.Until(cert.NotAfter) < time.Hour {
			err = fmt.Errorf("it expires at %s", cert.NotAfter)
		}
		return err
	})
	if n := w.countRequests(ctx, t, certificatesv1.KubeAPIServerClientKubeletSignerName, node); n != 1 {
		t.Errorf("%d requests of the node's", n)
	}
	w.WaitNode(ctx, t)
	w.answers(ctx, t)
	log, err := os.ReadFile(filepath.Join(w.Dir, "node.log"))
	if err != nil || strings.Contains(string(log), "PRIVATE KEY") {
		t.Errorf("a key is in the log, or %v", err)
	}
}

// documented returns the commands of docs/node.md for certificates: those that grant rights, those that show a request,
// and the one that approves it.
func documented(t *testing.T) (grants, shown []string, approve string) {
	t.Helper()
	grants, shown = lines(t, "kubectl create clusterrolebinding"), lines(t, "kubectl get csr")
	approves := lines(t, "kubectl certificate approve")
	if len(grants) != 3 || len(shown) != 3 || len(approves) != 1 {
		t.Fatalf("docs/node.md has %q, %q and %q", grants, shown, approves)
	}
	return grants, shown, approves[0]
}

// request returns the name of the only request to a signer.
func (w *world) request(ctx context.Context, t *testing.T, signer string) string {
	t.Helper()
	of := metav1.ListOptions{FieldSelector: "spec.signerName=" + signer}
	list, err := w.Client.CertificatesV1().CertificateSigningRequests().List(ctx, of)
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("requests to %s: %v, %v", signer, list, err)
	}
	return list.Items[0].Name
}

// answers waits until the API server gets an answer from the node. The API server accepts only certificates of the
// cluster's authority.
func (w *world) answers(ctx context.Context, t *testing.T) {
	t.Helper()
	w.Wait(ctx, t, "the node's API", func(ctx context.Context) error {
		out, err := w.Client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes", testkube.NodeName, "proxy/healthz").DoRaw(ctx)
		if err == nil && string(out) != "ok" {
			err = fmt.Errorf("its answer is %q", out)
		}
		return err
	})
}

// shell runs a user's command line and returns its output.
func (w *world) shell(ctx context.Context, t *testing.T, line string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, "sh", "-ec", line)
	cmd.Env = w.user.Env()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	return string(out)
}

// countRequests counts a user's requests to a signer.
func (w *world) countRequests(ctx context.Context, t *testing.T, signer, user string) (n int) {
	t.Helper()
	list, err := w.Client.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range list.Items {
		if one.Spec.SignerName == signer && one.Spec.Username == user {
			n++
		}
	}
	return n
}
