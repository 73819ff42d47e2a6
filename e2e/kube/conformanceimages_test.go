package kube

import (
	"archive/tar"
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/bulkhead-project/bulkhead/internal/ociimage"
	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
)

// push pushes stand-ins for the suite's images to the registry, by the suite's names and versions.
func (c *conformance) push(t *testing.T) {
	t.Helper()
	c.repositories = filepath.Join(c.Dir, "repositories.yaml")
	text := "promoterE2eRegistry: " + c.registry.Host + "/e2e\ngcRegistry: " + c.registry.Host + "\n"
	if err := os.WriteFile(c.repositories, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	list := exec.CommandContext(t.Context(), c.program, "--list-images")
	list.Env = append(os.Environ(), "KUBE_TEST_REPO_LIST="+c.repositories)
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	images := standIns(t)
	for image := range strings.FieldsSeq(string(out)) {
		name, ours := strings.CutPrefix(image, c.registry.Host+"/")
		base, _, _ := strings.Cut(path.Base(name), ":")
		if standIn := images[base]; ours && standIn != nil {
			c.registry.Push(t, name, standIn)
		}
	}
}

// curl implements the part of curl that the specifications need.
const curl = `#!/bin/sh
for url; do :; done
exec wget -q -O - "$url"
`

// pause ends at once on a signal. A pod's first process ignores a signal until its trap is set, so the script starts
// fast.
const pause = "trap 'exit 0' TERM INT; while :; do sleep 1000 & wait; done"

// standIns returns images with the contents that the specifications expect.
func standIns(t *testing.T) map[string]v1.Image {
	t.Helper()
	busybox := over(t, testimage.BusyboxImage(t), func(*v1.Config) {}, ociimage.Symlink("bin/sysctl", "busybox")) // at the expected path
	cert, key := certificate(t)
	agnhost := over(t, busybox, func(c *v1.Config) { c.Entrypoint, c.Cmd = []string{"/agnhost"}, []string{"pause"} },
		program(t, "agnhost", "agnhost", 0o755), ociimage.Symlink("agnhost-2", "agnhost"), ociimage.File("usr/bin/curl", 0o755, curl),
		ociimage.File("localhost.crt", 0o644, cert), ociimage.File("localhost.key", 0o644, key))
	return map[string]v1.Image{
		"agnhost": agnhost,
		"pause":   over(t, busybox, func(c *v1.Config) { c.Cmd = []string{"sh", "-c", pause} }),
		"busybox": busybox, "glibc-dns-testing": busybox,
		"nonroot": over(t, busybox, func(c *v1.Config) { c.User = "1234" }),
		"nonewprivs": over(t, busybox, func(c *v1.Config) { c.Cmd = []string{"nnp"} },
			program(t, "nonewprivs", "usr/local/bin/nnp", 0o4755)),
	}
}

// certificate returns a certificate that is never verified, and its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	own := server.TLS.Certificates[0]
	der, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate[0]})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// program returns a program of a module as a file of an image.
func program(t *testing.T, name, path string, mode int64) ociimage.Entry {
	t.Helper()
	body, err := os.ReadFile(testkube.Program(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return ociimage.Entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: mode}, Body: body}
}

// over returns an image with an additional layer.
func over(t *testing.T, base v1.Image, config func(*v1.Config), entries ...ociimage.Entry) v1.Image {
	t.Helper()
	layer, err := ociimage.Layer(entries)
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(base, layer)
	if err != nil {
		t.Fatal(err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	changed := file.Config
	config(&changed)
	if img, err = mutate.Config(img, changed); err != nil {
		t.Fatal(err)
	}
	return img
}
