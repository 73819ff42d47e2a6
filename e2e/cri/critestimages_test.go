package cri

import (
	"archive/tar"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/bulkhead-project/bulkhead/internal/busybox"
	"github.com/bulkhead-project/bulkhead/internal/ociimage"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
)

// brctl replaces busybox's, which needs a kernel with bridges. critest runs it as a command that needs the right to
// manage networks.
const brctl = "#!/bin/sh\nexec ip addr add 127.0.0.2/8 dev lo\n"

const nginxConf = `worker_processes 1;
pid /var/run/nginx.pid;
events {}
http { access_log off; server { listen PORT; root /www; } }
`

// critestImages serves stand-ins for the images that critest pulls, and redirects their registries to them.
func critestImages(t *testing.T) {
	t.Helper()
	r := testimage.Registry(t)
	conf := ""
	for _, host := range []string{"registry.k8s.io", "k8s.gcr.io", "gcr.io/k8s-staging-cri-tools"} {
		conf += "[[registry]]\nprefix = \"" + host + "\"\nlocation = \"" + r.Host + "/" + host + "\"\ninsecure = true\n"
	}
	t.Setenv("CONTAINERS_REGISTRIES_CONF", write(t, t.TempDir(), "registries.conf", conf))
	box, err := busybox.Image(t.Context(), "../../"+busybox.Built) // with pgrep and ipcs
	if err != nil {
		t.Fatal(err)
	}
	users := []ociimage.Entry{
		ociimage.File("etc/passwd", 0o644, "root:x:0:0::/root:/bin/sh\ndefault-user:x:1000:1000::/:/bin/sh\n"),
		ociimage.File("etc/group", 0o644, "root:x:0:\ndefault-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n"),
	}
	const serve = "echo httpd; exec httpd -f -p 80 -h /www"
	const e2e, own = "registry.k8s.io/e2e-test-images/", "gcr.io/k8s-staging-cri-tools/"
	web, pause := nginx(t), with(t, box, v1.Config{Cmd: []string{"sleep", "1000"}})
	images := map[string]v1.Image{
		"registry.k8s.io/pause:3.9":         pause,
		"k8s.gcr.io/pause:3.9":              pause,
		e2e + "busybox:1.29-2":              with(t, box, v1.Config{Cmd: []string{"sh"}}, ociimage.File("usr/local/bin/brctl", 0o755, brctl)),
		e2e + "nginx:1.14-2":                listening(t, web, "80"),
		own + "hostnet-nginx-amd64":         listening(t, web, "12003"),
		e2e + "httpd:2.4.39-4":              with(t, box, v1.Config{Cmd: []string{"sh", "-c", serve}}, page()),
		e2e + "nonewprivs:1.3":              with(t, box, v1.Config{Entrypoint: []string{"/nnp"}}, setuid(t)),
		own + "test-image-predefined-group": with(t, box, v1.Config{User: "1000"}, users...),
	}
	for name, user := range map[string]string{
		"uid": "1002", "username": "www-data", "uid-group": "1003:1004", "username-group": "www-data:1004",
	} {
		images[own+"test-image-user-"+name] = with(t, box, v1.Config{User: user})
	}
	for _, name := range []string{"latest", "tag:test", "tag:all", "1:latest", "2:latest", "3:latest"} {
		images[own+"test-image-"+name] = marked(t, box, name)
	}
	for _, tag := range []string{"1", "2", "3"} {
		images[own+"test-image-tags:"+tag] = marked(t, box, "tags")
	}
	for name, img := range images {
		r.Push(t, name, img)
	}
}

// with returns an image with additional files and a configuration.
func with(t *testing.T, img v1.Image, config v1.Config, files ...ociimage.Entry) v1.Image {
	t.Helper()
	layer, err := ociimage.Layer(files)
	if err == nil && len(files) > 0 {
		img, err = mutate.AppendLayers(img, layer)
	}
	if err == nil {
		img, err = mutate.Config(img, config)
	}
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// marked returns an image that differs by its mark.
func marked(t *testing.T, img v1.Image, mark string) v1.Image {
	t.Helper()
	return with(t, img, v1.Config{Cmd: []string{"sh"}}, ociimage.File("mark", 0o644, mark))
}

// nginx returns Debian's nginx with a shell.
func nginx(t *testing.T) v1.Image {
	t.Helper()
	archive, err := tarball.ImageFromPath("../../build/images/nginx.tar", nil)
	if err != nil {
		t.Fatalf("%v (make test makes it)", err)
	}
	img, err := ociimage.New(v1.Config{})
	if err != nil {
		t.Fatal(err)
	}
	layers, err := archive.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers { // Docker's media type: an image cannot mix types of layers
		l, err = tarball.LayerFromOpener(l.Uncompressed, tarball.WithMediaType(types.OCILayer))
		if err == nil {
			img, err = mutate.AppendLayers(img, l)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	shell, err := os.ReadFile(busybox.Binary)
	if err != nil {
		t.Fatal(err)
	}
	files := []ociimage.Entry{program("usr/local/bin/busybox", shell, 0o755), page(), ociimage.Dir("var/run", 0o755)}
	for _, name := range []string{"sh", "cat", "grep", "sleep"} {
		files = append(files, ociimage.Symlink("usr/local/bin/"+name, "busybox"))
	}
	return with(t, img, v1.Config{}, files...)
}

// listening returns the image of a web server on a port.
func listening(t *testing.T, img v1.Image, port string) v1.Image {
	t.Helper()
	return with(t, img, v1.Config{Cmd: []string{"nginx", "-g", "daemon off;"}},
		ociimage.File("etc/nginx/nginx.conf", 0o644, strings.ReplaceAll(nginxConf, "PORT", port)))
}

func page() ociimage.Entry { return ociimage.File("www/index.html", 0o644, "hello\n") }

// setuid returns a set-user-ID program of root that prints its user.
func setuid(t *testing.T) ociimage.Entry {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nnp")
	build := testgo.Command(t.Context(), "build", "-o", path, "./testdata/nnp")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return program("nnp", body, 0o4755)
}

func program(name string, body []byte, mode int64) ociimage.Entry {
	return ociimage.Entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode}, Body: body}
}
