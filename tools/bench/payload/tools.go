package payload

import (
	"archive/tar"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/bulkhead-project/bulkhead/internal/busybox"
	"github.com/bulkhead-project/bulkhead/internal/ociimage"
)

// Worker is the name of the program that works with files, in the image and in the VM.
const Worker = "bin/filework"

// git is its path in Debian's package.
const git = "/usr/bin/git"

// Tools returns worker, busybox, and this host's git with its libraries, as entries of an image or archive.
func Tools(worker string) ([]ociimage.Entry, error) {
	from := map[string]string{worker: Worker, git: git[1:], busybox.Binary: busybox.Binary[1:]}
	if err := libraries(git, from); err != nil {
		return nil, fmt.Errorf("find the libraries of git: %w", err)
	}
	dirs := map[string]bool{}
	all := []ociimage.Entry{
		ociimage.Symlink("usr/bin/git-upload-pack", "git"),
		ociimage.Symlink("bin/sh", "busybox"), // git looks for the former
		// git trusts the trees of other users only if its configuration says so.
		ociimage.File("etc/gitconfig", 0o644, "[safe]\n\tdirectory = *\n"),
	}
	for path, name := range from {
		body, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		all = append(all, ociimage.Entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755}, Body: body})
	}
	for _, e := range all {
		for dir := filepath.Dir(e.Name); dir != "."; dir = filepath.Dir(dir) {
			dirs[dir] = true
		}
	}
	for dir := range dirs {
		all = append(all, ociimage.Dir(dir, 0o755))
	}
	slices.SortFunc(all, func(a, b ociimage.Entry) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// libraries adds the libraries that a program loads, by path and name.
func libraries(program string, to map[string]string) error {
	f, err := elf.Open(program)
	if err != nil {
		return err
	}
	defer f.Close()
	names, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	if s := f.Section(".interp"); s != nil {
		b, err := s.Data()
		if err != nil {
			return err
		}
		loader := strings.TrimRight(string(b), "\x00")
		to[loader] = strings.TrimPrefix(loader, "/")
	}
	for _, name := range names {
		at := slices.IndexFunc(libraryDirs, func(dir string) bool {
			_, err := os.Stat(filepath.Join(dir, name))
			return err == nil
		})
		if at < 0 {
			return fmt.Errorf("%s: %w", name, os.ErrNotExist)
		}
		path := filepath.Join(libraryDirs[at], name)
		if _, known := to[path]; known {
			continue
		}
		to[path] = "lib/x86_64-linux-gnu/" + name
		if err := libraries(path, to); err != nil {
			return err
		}
	}
	return nil
}

var libraryDirs = []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"}

// ToolsImage returns busybox with tools.
func ToolsImage(ctx context.Context, tools []ociimage.Entry) (v1.Image, error) {
	img, err := busybox.Image(ctx, busybox.Binary)
	if err != nil {
		return nil, err
	}
	layer, err := pack(tools)
	if err != nil {
		return nil, fmt.Errorf("build the benchmark's image: %w", err)
	}
	return mutate.AppendLayers(img, layer)
}
