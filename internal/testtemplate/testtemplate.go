// Package testtemplate spares tests the making of a template each: what one test of a
// process has made, the next ones find in their data directories.
package testtemplate

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// pool has a directory for each user, and in it the templates that tests have made.
var pool struct {
	sync.Mutex
	dir string
}

// Share gives a data directory the templates that earlier tests of this process made for
// the same user, and keeps those that the test t makes. The directory lies in home, which is the
// user's; it need not exist yet, and no engine uses it yet. Whatever removes it at the test's end,
// or ends its engine, is registered before, or after. The files have more than one name: a test that
// spoils a template has one of its own.
func Share(t testing.TB, home, data string) {
	t.Helper()
	info, err := os.Stat(home)
	if err != nil {
		t.Fatalf("share templates: %v", err)
	}
	st := info.Sys().(*syscall.Stat_t)
	u := user{int(st.Uid), int(st.Gid)}
	own := dirs.Roots{Data: data}.Templates()
	pool.Lock()
	defer pool.Unlock()
	if pool.dir == "" { // beside home: files are linked on one file system only
		if pool.dir, err = os.MkdirTemp(filepath.Dir(home), "bk-templates"); err != nil {
			t.Fatalf("share templates: %v", err)
		}
	}
	kept := filepath.Join(pool.dir, strconv.Itoa(u.uid))
	if err := u.link(kept, own); err != nil {
		t.Fatalf("share templates: %v", err)
	}
	t.Cleanup(func() {
		pool.Lock()
		defer pool.Unlock()
		if err := u.link(own, kept); err != nil {
			t.Errorf("keep templates: %v", err)
		}
	})
}

// Remove removes what was kept. TestMain calls it when the tests have ended.
func Remove() error {
	pool.Lock()
	defer pool.Unlock()
	dir := pool.dir
	pool.dir = ""
	return os.RemoveAll(dir)
}

// user is who owns the directories.
type user struct{ uid, gid int }

// link gives the directory to those templates of from that it lacks.
func (u user) link(from, to string) error {
	found, err := filepath.Glob(filepath.Join(from, "[^.]*", "template.json")) // none that is half made
	if err != nil {
		return err
	}
	for _, info := range found {
		template := filepath.Dir(info)
		dir := filepath.Join(to, filepath.Base(template))
		if _, err := os.Lstat(dir); err == nil {
			continue
		}
		files, err := os.ReadDir(template)
		if err == nil {
			err = u.mkdir(dir)
		}
		for _, f := range files {
			err = errors.Join(err, os.Link(filepath.Join(template, f.Name()), filepath.Join(dir, f.Name())))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mkdir makes a directory and its missing parents, which everybody may pass through.
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
