package spec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/containerd/errdefs"
)

// maxLinks bounds the links in a path, as in the kernel.
const maxLinks = 40

// PlaceIn returns the place of a mount. It resolves a destination that leads through links of the image to a missing
// file, because crun cannot both follow links and create directories. No link leads out of the root. It returns any
// other destination unchanged.
func PlaceIn(root, destination string) (string, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return "", err
	}
	defer r.Close()
	at, links, missing := "", 0, false
	for rest := strings.Split(path.Clean("/"+destination), "/"); len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = strings.TrimPrefix(path.Dir("/"+at), "/")
			continue
		}
		next := path.Join(at, name)
		info, err := r.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) {
			at, missing = next, true
			continue
		}
		if err != nil {
			return "", fmt.Errorf("mount at %.128q: %w", destination, err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("mount at %.128q: too many links in the image: %w", destination, errdefs.ErrInvalidArgument)
		}
		target, err := r.Readlink(next)
		if err != nil {
			return "", fmt.Errorf("mount at %.128q: %w", destination, err)
		}
		if path.IsAbs(target) {
			at = ""
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	if links == 0 || !missing {
		return destination, nil
	}
	return "/" + at, nil
}
