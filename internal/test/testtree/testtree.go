// Package testtree lists trees of files for tests that compare them.
package testtree

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// List describes each file below dir, by its relative path: mode, change time in nanoseconds and content; the target of
// a link ("-> target"); the first other name of the same file ("= name"); or only the mode of other types.
func List(t testing.TB, dir string) map[string]string {
	t.Helper()
	files, firsts := map[string]string{}, map[string]fs.FileInfo{}
	err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || file == dir {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		files[name], err = describe(file, info)
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		for first, other := range firsts {
			if os.SameFile(other, info) {
				files[name] = "= " + first
				return nil
			}
		}
		firsts[name] = info
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func describe(file string, info fs.FileInfo) (string, error) {
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(file)
		return "-> " + target, err
	case info.IsDir():
		return fmt.Sprint(info.Mode(), " ", info.ModTime().UnixNano()), nil
	case !info.Mode().IsRegular():
		return info.Mode().String(), nil
	}
	content, err := os.ReadFile(file)
	return fmt.Sprintf("%v %d %q", info.Mode(), info.ModTime().UnixNano(), content), err
}
