package manifests

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/internal/trusted"
)

const (
	// maxFile bounds a file, in bytes: an API server takes no larger object as its mirror.
	maxFile = 1 << 20
	// maxFiles bounds the files that are read, and maxNames the names in the directory.
	maxFiles = 512
	maxNames = 4096
)

// read takes in what the directory has now. Where it cannot be read all stays as it was.
func (s *Source) read() error {
	dir, names, err := list(s.o.Dir)
	if dir != nil {
		defer dir.Close()
	}
	s.mu.Lock()
	s.fault = err
	before := maps.Clone(s.files)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	now, owner := map[string]file{}, map[string]string{}
	for _, name := range names {
		f := s.one(dir, name)
		if f.err != nil && !errors.Is(f.err, os.ErrNotExist) { // it goes on as what it was
			f.uid, f.pod = before[name].uid, before[name].pod
		}
		if f.pod == nil && f.err == nil {
			continue // it is none to read, or is gone meanwhile
		}
		if f.pod != nil {
			if other, twice := owner[keyOf(f.pod)]; twice { // it goes on as what it was as well
				f.err = errors.Join(f.err, fmt.Errorf("pod %s is already defined by %s", keyOf(f.pod), other))
				f.uid, f.pod = before[name].uid, before[name].pod
				if f.pod != nil && owner[keyOf(f.pod)] != "" {
					f.uid, f.pod = "", nil
				}
			}
			if f.pod != nil {
				owner[keyOf(f.pod)] = name
			}
		}
		now[name] = f
	}
	s.take(now)
	return nil
}

// list opens a directory that can be trusted, and returns the names of its files, in their order. Hidden ones are left out.
// The caller closes the directory, unless it is nil.
func list(dir string) (d *os.File, names []string, err error) {
	d, err = trusted.Dir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("read the static pods: %w", err)
	}
	all, err := d.Readdirnames(maxNames + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return d, nil, fmt.Errorf("read the static pods: %w", err)
	}
	for _, name := range all {
		if !strings.HasPrefix(name, ".") {
			names = append(names, name)
		}
	}
	if len(names) > maxFiles || len(all) > maxNames {
		return d, nil, fmt.Errorf("read the static pods: %s has more than %d files", dir, maxFiles)
	}
	slices.Sort(names)
	return d, names, nil
}

func keyOf(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// one reads a file of the directory. One that is a directory is nothing.
func (s *Source) one(dir *os.File, name string) file {
	data, err := contents(dir, name)
	if err != nil || data == nil {
		return file{err: err}
	}
	pod, err := decode(filepath.Join(s.o.Dir, name), s.o.Node, data)
	if err != nil {
		return file{err: err}
	}
	return file{uid: pod.UID, pod: pod, whole: true}
}

// contents are those of a file that can be trusted, nil for what is no file.
func contents(dir *os.File, name string) ([]byte, error) {
	f, err := trusted.At(dir, name)
	if errors.Is(err, os.ErrNotExist) || f == nil && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read a static pod: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read a static pod: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("read a static pod: %s has more than %d bytes", f.Name(), maxFile)
	}
	return data, nil
}

// take has the files be what there is, and tells of pods that are new or gone.
func (s *Source) take(now map[string]file) {
	next := map[types.UID]*corev1.Pod{}
	for _, f := range now {
		if f.pod != nil {
			next[f.uid] = f.pod
		}
	}
	s.mu.Lock()
	before := s.pods
	for uid := range next {
		if old := before[uid]; old != nil {
			next[uid] = old // with the time at which it was seen first
		}
		s.ever[uid] = true
	}
	s.files, s.pods = now, next
	quiet := slices.DeleteFunc(slices.Collect(maps.Keys(s.told)), func(name string) bool {
		_, there := now[name]
		return there || name == s.o.Dir
	})
	for _, name := range quiet {
		delete(s.told, name)
	}
	s.mu.Unlock()
	for name, f := range now {
		s.problem(name, f.err)
	}
	if s.changed == nil {
		return
	}
	for uid, p := range before {
		if next[uid] == nil {
			s.gone(p)
		}
	}
	for uid := range next {
		if before[uid] == nil {
			s.changed(uid)
		}
	}
}
