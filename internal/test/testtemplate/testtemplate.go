// Package testtemplate spares tests the building of templates and the probe of KVM. Tests find those of earlier tests
// of the same user, also from other processes and checkouts. They lie in the user's cache, below a hash of the sources
// that a template depends on and its own key does not cover.
package testtemplate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/flock"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
)

const (
	// lifetime is how long a template is used, so that each is built at least once a day.
	lifetime = 24 * time.Hour
	// most bounds the number of templates of one tree, each of up to 200 MB.
	most = 12
	// trees bounds the number of trees.
	trees = 4
	// infoFile is a template's last file: without it a directory is not a template.
	infoFile = "template.json"
	// verdictFile is the verdict of a probe of KVM.
	verdictFile = "kvm.json"
)

// Share puts the cached templates and the verdict on KVM of their user into roots, and caches those of the test t,
// unless it fails. The roots lie in home, which the user owns. They need not exist yet, and no engine may use them yet.
// Register the removal of the directory before Share, and the end of its engine after it. The files are hard links if
// possible: a test that damages a template must replace its files. If the test cannot write a cache, Share does
// nothing.
func Share(t testing.TB, home string, roots dirs.Roots) {
	t.Helper()
	cache, err := where()
	if err != nil {
		t.Logf("templates are not shared: %v", err)
		return
	}
	share(t, cache, home, roots)
}

func share(t testing.TB, cache, home string, roots dirs.Roots) {
	t.Helper()
	info, err := os.Stat(home)
	if err != nil {
		t.Fatalf("share templates: %v", err)
	}
	st := info.Sys().(*syscall.Stat_t)
	u := user{uid: int(st.Uid), gid: int(st.Gid), kept: filepath.Join(cache, strconv.Itoa(int(st.Uid)))}
	own := roots.Templates()
	get := func() error {
		return errors.Join(prune(cache), u.link(u.kept, own, false), u.copyVerdict(u.kept, roots.State))
	}
	if err := locked(cache, get); err != nil {
		t.Fatalf("share templates: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			return // its files may be damaged
		}
		keep := func() error { return errors.Join(u.link(own, u.kept, true), u.copyVerdict(roots.State, u.kept)) }
		if err := locked(cache, keep); err != nil {
			t.Errorf("cache templates: %v", err)
		}
	})
}

// locked calls do while no other process uses the cache.
func locked(cache string, do func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	lock, err := flock.Acquire(ctx, filepath.Join(cache, ".lock"))
	if err != nil {
		return err
	}
	return errors.Join(do(), lock.Unlock())
}

// where returns the cache directory of this tree.
var where = sync.OnceValues(func() (string, error) {
	root, err := testgo.Root()
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	key, err := sources(root, "api/agent", "channel", "hypervisor", "sandbox/ready")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "bulkhead", "test-templates")
	if err := os.MkdirAll(filepath.Join(dir, key), 0o700); err != nil {
		return "", err
	}
	return filepath.Join(dir, key), locked(dir, func() error { return forget(dir, key) })
})

// sources returns a hash of the code below directories of the module, without tests.
func sources(root string, below ...string) (string, error) {
	sum := sha256.New()
	for _, dir := range below {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			sum.Write(text)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// forget removes the caches of trees that were not used for a lifetime, and the least recently used ones beyond the
// limit.
func forget(dir, key string) error {
	if err := os.Chtimes(filepath.Join(dir, key), time.Time{}, time.Now()); err != nil {
		return err
	}
	found, err := filepath.Glob(filepath.Join(dir, "*"))
	return errors.Join(err, retain(found, trees))
}

// prune removes templates that are too old, and the oldest beyond the limit.
func prune(cache string) error {
	found, err := filepath.Glob(filepath.Join(cache, "*", "*", infoFile))
	return errors.Join(err, retain(found, most))
}

// retain removes the directories, or the files' directories, that are older than a lifetime or beyond the n youngest.
func retain(paths []string, n int) (err error) {
	ages := map[string]time.Duration{}
	for _, path := range paths {
		info, statErr := os.Stat(path)
		if statErr != nil {
			return statErr
		}
		ages[path] = time.Since(info.ModTime())
	}
	slices.SortFunc(paths, func(a, b string) int { return cmp.Compare(ages[a], ages[b]) })
	for i, path := range paths {
		if i < n && ages[path] <= lifetime {
			continue
		}
		if filepath.Base(path) == infoFile { // first: without it the rest is not a template
			err = errors.Join(err, os.Remove(path))
			path = filepath.Dir(path)
		}
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

// user owns the templates in kept.
type user struct {
	uid, gid int
	kept     string
}

// link links the templates of from that the directory to lacks. With replace it also replaces different ones: the test
// has built a template again, because clones of the old one failed.
func (u user) link(from, to string, replace bool) error {
	found, err := filepath.Glob(filepath.Join(from, "[^.]*", infoFile)) // only complete ones
	if err != nil {
		return err
	}
	for _, path := range found {
		template := filepath.Dir(path)
		dir := filepath.Join(to, filepath.Base(template))
		if whole(dir) && (!replace || same(path, filepath.Join(dir, infoFile))) {
			continue
		}
		if err := u.linkOne(template, dir); err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}
	}
	return nil
}

// linkOne makes dir a copy of the template. The last file completes it.
func (u user) linkOne(template, dir string) error {
	if err := os.Remove(filepath.Join(dir, infoFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := errors.Join(os.RemoveAll(dir), u.mkdir(dir)); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(template, "*"))
	if err != nil {
		return err
	}
	info := filepath.Join(template, infoFile)
	files = append(slices.DeleteFunc(files, func(f string) bool { return f == info }), info)
	for _, source := range files {
		target := filepath.Join(dir, filepath.Base(source))
		err := os.Link(source, target)
		if errors.Is(err, unix.EXDEV) {
			err = exec.Command("cp", "--preserve=all", "--sparse=always", source, target).Run()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyVerdict copies the verdict on KVM, if there is one.
func (u user) copyVerdict(from, to string) error {
	text, err := os.ReadFile(filepath.Join(from, verdictFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	path := filepath.Join(to, verdictFile)
	return errors.Join(err, u.mkdir(to), os.WriteFile(path, text, 0o644), os.Lchown(path, u.uid, u.gid))
}

func whole(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, infoFile))
	return err == nil
}

// same compares size and time, because copies have the time of their source.
func same(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && x.ModTime().Equal(y.ModTime()) && x.Size() == y.Size()
}

// mkdir creates a directory and its missing parents, which every user may traverse.
func (u user) mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o711); err == nil {
		return os.Lchown(dir, u.uid, u.gid)
	} else if errors.Is(err, fs.ErrExist) {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(u.mkdir(filepath.Dir(dir)), u.mkdir(dir))
}
