package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
)

// testGuard: the node's API asks the API server for a client's identity and permissions. An anonymous client is refused. A
// service account gets exactly its roles' rights.
func (w *world) testGuard(t *testing.T) {
	ctx := testdeadline.Context(t, time.Minute)
	node, err := w.Client.CoreV1().Nodes().Get(ctx, testkube.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	at := "https://" + testkube.NodeIP + ":" + strconv.Itoa(int(node.Status.DaemonEndpoints.KubeletEndpoint.Port))
	anyone := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the certificate does not matter here
	transport := &http.Transport{TLSClientConfig: anyone}
	defer transport.CloseIdleConnections()
	ask := func(ctx context.Context, method, path, token string) (int, error) {
		r, err := http.NewRequestWithContext(ctx, method, at+path, http.NoBody)
		if err != nil {
			return 0, err
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		got, err := transport.RoundTrip(r)
		if err != nil {
			return 0, err
		}
		_, err = io.Copy(io.Discard, got.Body)
		got.Body.Close()
		return got.StatusCode, err
	}
	account := func(name string) string {
		t.Helper()
		accounts := w.Client.CoreV1().ServiceAccounts(ns)
		if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		token, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return token.Status.Token
	}
	none, some := account("guarded-none"), account("guarded-some")
	rbac := w.Client.RbacV1()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "guarded"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes/metrics"}, Verbs: []string{"get"}},
	}}
	if _, err := rbac.ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "guarded"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "guarded"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "guarded-some"}},
	}
	if _, err := rbac.ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.Wait(ctx, t, "the right to read metrics", func(ctx context.Context) error {
		if code, err := ask(ctx, http.MethodGet, "/metrics", some); err != nil || code != http.StatusOK {
			return fmt.Errorf("answered %d, %w", code, err)
		}
		return nil
	})
	for _, tt := range []struct {
		method, path, token string
		want                int
	}{
		{http.MethodGet, "/pods", "", http.StatusUnauthorized},
		{http.MethodGet, "/metrics", "nonsense", http.StatusUnauthorized},
		{http.MethodGet, "/metrics", none, http.StatusForbidden},
		{http.MethodPost, "/exec/default/p/c?command=id", none, http.StatusForbidden},
		{http.MethodGet, "/pods", some, http.StatusForbidden},
		{http.MethodPost, "/exec/default/p/c?command=id", some, http.StatusForbidden},
		{http.MethodGet, "/exec/default/p/c?command=id", some, http.StatusForbidden},
	} {
		if code, err := ask(ctx, tt.method, tt.path, tt.token); err != nil || code != tt.want {
			t.Errorf("%s %s with a token of %d bytes: %d, %v, want %d", tt.method, tt.path, len(tt.token), code, err, tt.want)
		}
	}
}
