package cri

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/busybox"
	"github.com/bulkhead-project/bulkhead/internal/ociimage"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
)

// registries configures plain HTTP for the test's registries.
func registries(t *testing.T) {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "registries.conf")
	text := "[[registry]]\nlocation = \"127.0.0.1\"\ninsecure = true\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CONTAINERS_REGISTRIES_CONF", conf)
	t.Setenv("REGISTRY_AUTH_FILE", filepath.Join(t.TempDir(), "auth.json"))
}

// images: images are pulled, found by every name, and removed.
func images(ctx context.Context, t *testing.T, n *node) {
	registries(t)
	r := testimage.Registry(t, testimage.BasicAuth("me", "secret"))
	img, err := busybox.Image(ctx, busybox.Binary)
	if err != nil {
		t.Fatal(err)
	}
	img, err = mutate.Config(img, v1.Config{Cmd: []string{"sh"}, User: "1234:5", Labels: map[string]string{"suite": "images"}})
	if err != nil {
		t.Fatal(err)
	}
	ref, _ := r.Push(t, "own/image:1", img)
	other, _ := r.Push(t, "arm/image:1", foreign(t, img))
	spec := &runtimeapi.ImageSpec{Image: ref}
	for name, auth := range map[string]*runtimeapi.AuthConfig{
		"none": nil, "wrong": {Username: "me", Password: "wrong"}, "not base64": {Auth: "?"},
	} {
		_, err := n.Images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: spec, Auth: auth})
		if err == nil || strings.Contains(err.Error(), "wrong") {
			t.Errorf("credentials that are %s: %v", name, err)
		}
	}
	auth := &runtimeapi.AuthConfig{Username: "me", Password: "secret"}
	pulled, err := n.Images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: spec, Auth: auth})
	if err != nil {
		t.Fatal(err)
	}
	_, err = n.Images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: other}, Auth: auth})
	if err == nil || !strings.Contains(err.Error(), "arm64") && !strings.Contains(err.Error(), "amd64") {
		t.Errorf("an image of another architecture: %v", err)
	}
	index := r.PushIndex(t, "arm/index:1", mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add: foreign(t, img), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}},
	}))
	_, err = n.Images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: index}, Auth: auth})
	if err == nil || !strings.Contains(err.Error(), "amd64") {
		t.Errorf("an index of other architectures: %v", err)
	}
	_, err = n.Images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: r.Host + "/no/image:1"}, Auth: auth})
	expect(t, "a missing image", err, codes.NotFound)

	st, err := n.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: spec, Verbose: true})
	i := st.GetImage()
	if err != nil || i.GetSize() == 0 || i.GetUid().GetValue() != 1234 || i.GetPinned() || st.GetInfo()["config"] == "" ||
		!slices.Contains(i.GetRepoTags(), ref) || len(i.GetRepoDigests()) != 1 || pulled.GetImageRef() != i.GetId() {
		t.Fatalf("status %v, %v", st, err)
	}
	for _, name := range []string{pulled.GetImageRef(), i.GetId(), i.GetRepoDigests()[0], i.GetSpec().GetImage()} {
		by, err := n.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
		if err != nil || by.GetImage().GetId() != i.GetId() {
			t.Errorf("by %s: %v, %v", name, by, err)
		}
		list, err := n.Images.ListImages(ctx, &runtimeapi.ListImagesRequest{
			Filter: &runtimeapi.ImageFilter{Image: &runtimeapi.ImageSpec{Image: name}},
		})
		if err != nil || len(list.GetImages()) != 1 || list.GetImages()[0].GetId() != i.GetId() {
			t.Errorf("listed by %s: %v, %v", name, list, err)
		}
	}
	fs, err := n.Images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil || len(fs.GetImageFilesystems()) != 1 || len(fs.GetContainerFilesystems()) != 1 ||
		fs.GetImageFilesystems()[0].GetUsedBytes().GetValue() == 0 || fs.GetImageFilesystems()[0].GetFsId().GetMountpoint() == "" {
		t.Errorf("file systems %v, %v", fs, err)
	}
	again, _ := r.Push(t, "other/image:2", img)
	_, err = n.Images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: again}, Auth: auth})
	expect(t, "another name", err, codes.OK)
	for range 2 { // by one name, together with the other
		_, err := n.Images.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: again}})
		expect(t, "RemoveImage", err, codes.OK)
	}
	none, err := n.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: spec})
	if err != nil || none.GetImage() != nil {
		t.Errorf("the status of a removed image: %v, %v", none, err)
	}
}

// stalled: a registry that stops in the middle of a layer delays its caller only until the caller's deadline, and does
// not delay others.
func stalled(ctx context.Context, t *testing.T, n *node) {
	registries(t)
	var stall atomic.Bool
	free := make(chan struct{})
	r := testimage.Registry(t, testimage.Wrap(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if !stall.Load() || !strings.Contains(req.URL.Path, "/blobs/") {
				next.ServeHTTP(w, req)
				return
			}
			w.Header().Set("Content-Length", "1000000")
			_, _ = w.Write(make([]byte, 1000))
			w.(http.Flusher).Flush()
			select {
			case <-free:
			case <-req.Context().Done():
			}
		})
	}))
	t.Cleanup(func() { close(free) })
	img := testimage.Image(t, v1.Config{}, []ociimage.Entry{ociimage.File("stalled", 0o644, "as it is")})
	ref, _ := r.Push(t, "stalled:1", img)
	pull := func(ctx context.Context) error {
		_, err := n.Images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
		return err
	}
	stall.Store(true)
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	expect(t, "a registry that stalls", pull(short), codes.DeadlineExceeded)
	began := time.Now()
	if _, err := n.Images.ListImages(ctx, &runtimeapi.ListImagesRequest{}); err != nil || time.Since(began) > testdeadline.For(5*time.Second) {
		t.Errorf("the images, while a registry stalls: %v after %v", err, time.Since(began))
	}
	stall.Store(false)
	expect(t, "a registry that has recovered", pull(ctx), codes.OK)
}

// foreign returns the image with another architecture.
func foreign(t *testing.T, img v1.Image) v1.Image {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.Architecture = "arm64"
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	return img
}
