package cri

import (
	"context"
	"encoding/base64"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// imageService implements the CRI's ImageManagerService, which needs only the image store and its directory.
type imageService struct {
	images *image.Store
	roots  dirs.Roots
}

// ListImages returns the images of the instance that match filter, which may be nil.
func (s *imageService) ListImages(_ context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	if name := filter.GetImage().GetImage(); name != "" {
		img, err := s.images.Resolve(name)
		if failure.NotFound(failure.Wrap(err, "")) {
			return nil, nil
		}
		if err != nil {
			return nil, failure.Wrap(err, "list images")
		}
		return []*runtimeapi.Image{toImage(img)}, nil
	}
	all, err := s.images.List()
	if err != nil {
		return nil, failure.Wrap(err, "list images")
	}
	out := make([]*runtimeapi.Image, 0, len(all))
	for _, img := range all {
		out = append(out, toImage(img))
	}
	return out, nil
}

// ImageStatus returns an image; the response is empty if it does not exist. With verbose, info contains the image's
// configuration under "config".
func (s *imageService) ImageStatus(_ context.Context, spec *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	if spec.GetImage() == "" {
		return nil, failure.Invalid("the image has no name")
	}
	img, err := s.images.Resolve(spec.GetImage())
	if failure.NotFound(failure.Wrap(err, "")) {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	if err != nil {
		return nil, failure.Wrap(err, "image status")
	}
	res := &runtimeapi.ImageStatusResponse{Image: toImage(img)}
	if verbose {
		raw, err := s.images.ConfigJSON(img.ID)
		if err != nil {
			return nil, failure.Wrap(err, "image status")
		}
		res.Info = map[string]string{"config": string(raw)}
	}
	return res, nil
}

// PullImage pulls an image and returns its id. It always asks the registry; the caller decides when to pull.
func (s *imageService) PullImage(
	ctx context.Context,
	spec *runtimeapi.ImageSpec,
	auth *runtimeapi.AuthConfig,
	_ *runtimeapi.PodSandboxConfig,
) (string, error) {
	if spec.GetImage() == "" {
		return "", failure.Invalid("the image has no name")
	}
	credentials, err := authOf(auth)
	if err != nil {
		return "", err
	}
	img, err := s.images.Pull(ctx, spec.GetImage(), image.PullOptions{Auth: credentials})
	if err != nil {
		return "", failure.Wrap(err, "pull")
	}
	return img.ID, nil
}

// RemoveImage removes an image with all its names. It succeeds if the image does not exist, and fails if it is in use.
func (s *imageService) RemoveImage(ctx context.Context, spec *runtimeapi.ImageSpec) error {
	if spec.GetImage() == "" {
		return failure.Invalid("the image has no name")
	}
	img, err := s.images.Resolve(spec.GetImage())
	if err == nil {
		err = s.images.Remove(ctx, img.ID, image.RemoveOptions{})
	}
	if failure.NotFound(failure.Wrap(err, "")) {
		return nil
	}
	return failure.Wrap(err, "remove image")
}

// ImageFsInfo returns the disk usage of the images and of the pods' writable disks.
func (s *imageService) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	usage := func(dir string) []*runtimeapi.FilesystemUsage {
		bytes, inodes := diskUsage(dir)
		return []*runtimeapi.FilesystemUsage{{
			Timestamp: time.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: dir},
			UsedBytes: &runtimeapi.UInt64Value{Value: bytes}, InodesUsed: &runtimeapi.UInt64Value{Value: inodes},
		}}
	}
	return &runtimeapi.ImageFsInfoResponse{
		ImageFilesystems: usage(s.roots.Images()), ContainerFilesystems: usage(s.roots.Sandboxes()),
	}, nil
}

// diskUsage returns the usage of a tree. It leaves out files that cannot be read or that disappear meanwhile.
func diskUsage(dir string) (bytes, inodes uint64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // a vanished file does not count
		}
		if info, err := e.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				bytes += uint64(st.Blocks) * 512
				inodes++
			}
		}
		return nil
	})
	return bytes, inodes
}

func toImage(img image.Image) *runtimeapi.Image {
	out := &runtimeapi.Image{
		Id: img.ID, RepoTags: img.Names, RepoDigests: img.Digests, Size: uint64(max(img.Size, 0)),
		Spec: &runtimeapi.ImageSpec{Image: img.ID},
	}
	user, _, _ := strings.Cut(img.User, ":")
	if uid, number, _ := containerv1.ParseID(user); number {
		out.Uid = &runtimeapi.Int64Value{Value: int64(uid)}
	} else { // clients reject an unreadable number as a name, and so does the guest
		out.Username = user
	}
	return out
}

// authOf converts the kubelet's credentials: fields, or "user:password" in base64.
func authOf(a *runtimeapi.AuthConfig) (*image.Auth, error) {
	switch {
	case a == nil:
		return nil, nil
	case a.GetIdentityToken() != "":
		return &image.Auth{Token: a.GetIdentityToken()}, nil
	case a.GetRegistryToken() != "":
		return nil, failure.Unsupported("pull: a registry token is not supported yet; give a user name and password, or an identity token")
	case a.GetUsername() != "":
		return &image.Auth{Username: a.GetUsername(), Password: a.GetPassword()}, nil
	case a.GetAuth() != "":
		raw, err := base64.StdEncoding.DecodeString(a.GetAuth())
		user, password, found := strings.Cut(strings.Trim(string(raw), "\x00"), ":")
		if err != nil || !found {
			return nil, failure.Invalid("pull: the credentials are not user:password in base64")
		}
		return &image.Auth{Username: user, Password: password}, nil
	}
	return nil, nil
}
