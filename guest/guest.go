// Package guest describes the guest bundle: the kernel, the initrd and the kernel command line from which every VM
// boots. Package guest/build creates a bundle; this package reads it.
package guest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Format is the version of the bundle's layout and of bundle.json. A bundle of another format is refused and must be
// built again.
const Format = 1

// The files of a bundle's directory.
const (
	ManifestFile = "bundle.json"
	KernelFile   = "vmlinux"
	InitrdFile   = "initrd"
)

var (
	// ErrInvalid is matched by the errors of Load and Verify for a bundle that exists but cannot be used: incomplete,
	// altered or truncated.
	ErrInvalid = errors.New("guest bundle is not valid")
	// ErrFormat is matched by Load's error for a bundle made by another
	// version of Bulkhead. Such an error also matches ErrInvalid.
	ErrFormat = errors.New("guest bundle has another format")
)

// Manifest is the content of bundle.json: the bundle's sources, and the expected sizes and hashes of its files.
type Manifest struct {
	Format int `json:"format"`
	// Cmdline is the kernel command line, without a console, which the VM's configuration adds.
	Cmdline string `json:"cmdline"`
	Kernel  Kernel `json:"kernel"`
	Crun    Crun   `json:"crun"`
	// Agent is the SHA-256 of the agent that is the guest's /init.
	Agent string `json:"agent"`
	// Modules are the names of the modules in the initrd, in load order.
	Modules []string `json:"modules"`
	// Files are the bundle's other files by their name.
	Files map[string]File `json:"files"`
}

// Kernel describes a bundle's kernel.
type Kernel struct {
	Release string `json:"release"` // as uname -r prints it
	Source  string `json:"source"`  // the package and its version, or "custom"
	Image   string `json:"image"`   // SHA-256 of the image from which vmlinux was unpacked
}

// Crun describes a bundle's container runtime.
type Crun struct {
	Version string `json:"version"`
	Source  string `json:"source"` // the source package and its version, or "custom"
	SHA256  string `json:"sha256"`
}

// File is the expected size and hash of a file of the bundle.
type File struct {
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// Bundle is a bundle on disk. It is a value and holds no open files.
type Bundle struct {
	Manifest
	// Dir is the bundle's directory.
	Dir string
	// Digest is the SHA-256 of bundle.json. Bundles with the same digest have the same contents, so it can be a key.
	Digest string
}

// KernelPath is the path of the uncompressed kernel.
func (b Bundle) KernelPath() string { return filepath.Join(b.Dir, KernelFile) }

// InitrdPath is the path of the initrd.
func (b Bundle) InitrdPath() string { return filepath.Join(b.Dir, InitrdFile) }

// Load reads the bundle in dir and checks that its files exist with the right sizes; Verify also checks their contents.
// The error matches os.ErrNotExist if there is no bundle, and ErrInvalid if it is unusable.
func Load(dir string) (Bundle, error) {
	path := filepath.Join(dir, ManifestFile)
	raw, err := os.ReadFile(path)
	if err != nil {
		return Bundle{}, fmt.Errorf("load guest bundle: %w", err)
	}
	sum := sha256.Sum256(raw)
	b := Bundle{Dir: dir, Digest: hex.EncodeToString(sum[:])}
	if err := json.Unmarshal(raw, &b.Manifest); err != nil {
		return Bundle{}, fmt.Errorf("load guest bundle %s: %w: %w", path, ErrInvalid, err)
	}
	if b.Format != Format {
		return Bundle{}, fmt.Errorf("load guest bundle %s: %w: %w: %d, want %d (make guest makes it again)",
			path, ErrInvalid, ErrFormat, b.Format, Format)
	}
	for _, name := range []string{KernelFile, InitrdFile} {
		if err := b.checkSize(name); err != nil {
			return Bundle{}, fmt.Errorf("load guest bundle %s: %w: %w", path, ErrInvalid, err)
		}
	}
	return b, nil
}

func (b Bundle) checkSize(name string) error {
	want, ok := b.Files[name]
	if !ok {
		return fmt.Errorf("the manifest must list %s", name)
	}
	info, err := os.Stat(filepath.Join(b.Dir, name))
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() != want.Size {
		return fmt.Errorf("%s is not a file of %d bytes", name, want.Size)
	}
	return nil
}

// Verify reads every file of the bundle, some 60 MB, and compares its hash. The error names the file, and matches
// ErrInvalid if the file was altered.
func (b Bundle) Verify() error {
	for _, name := range []string{KernelFile, InitrdFile} {
		got, err := HashFile(filepath.Join(b.Dir, name))
		if err != nil {
			return fmt.Errorf("verify guest bundle: %w", err)
		}
		if want := b.Files[name]; got != want {
			return fmt.Errorf("verify guest bundle %s: %w: %s has SHA-256 %s, want %s", b.Dir, ErrInvalid, name, got.SHA256, want.SHA256)
		}
	}
	return nil
}

// HashFile returns the size and hash of the file at path.
func HashFile(path string) (File, error) {
	f, err := os.Open(path)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return File{}, fmt.Errorf("hash %s: %w", path, err)
	}
	return File{Size: n, SHA256: hex.EncodeToString(h.Sum(nil))}, nil
}
