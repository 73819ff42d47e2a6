package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/place"
)

// issuer issues one token after the other.
type issuer struct {
	None
	text string
	err  error
}

func (i *issuer) Token(_ context.Context, source *corev1.ServiceAccountTokenProjection) ([]byte, error) {
	return []byte(i.text + " for " + source.Audience), i.err
}

// TestToken: a projected token is the issuer's, at each write of the volume. Without an issuer, or with a failing one,
// the volume is not written.
func TestToken(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: "api"}}},
	}}}}
	dir := t.TempDir()
	if err := New(dir, nil, place.Rules{}).Refresh(t.Context(), pod, nil); err == nil || !strings.Contains(err.Error(), "tokens") {
		t.Errorf("without an issuer: %v", err)
	}
	from := &issuer{text: "first"}
	m := New(dir, from, place.Rules{})
	for _, text := range []string{"first", "second"} {
		from.text = text
		if err := m.Refresh(t.Context(), pod, nil); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, "kubernetes.io~projected", "v", "token"))
		if err != nil || string(got) != text+" for api" {
			t.Errorf("%q, %v, want %s", got, err, text)
		}
	}
	from.err = errors.New("no such account")
	if err := m.Refresh(t.Context(), pod, nil); !errors.Is(err, from.err) {
		t.Errorf("an issuer that fails: %v", err)
	}
}
