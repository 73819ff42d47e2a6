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
	// maxFile limits a file, in bytes. An API server accepts no larger mirror pod.
	maxFile = 1 << 20
	// maxFiles limits the files that are read, and maxNames the entries of the directory.
	maxFiles = 512
	maxNames = 4096
)

// read reads the directory. If that fails, the pods stay as they were.
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
		if f.err != nil && !errors.Is(f.err, os.ErrNotExist) { // keep its earlier pod
			f.uid, f.pod = before[name].uid, before[name].pod
		}
		if f.pod == nil && f.err == nil {
			continue // not a file to read, or removed meanwhile
		}
		if f.pod != nil {
			if other, twice := owner[keyOf(f.pod)]; twice { // keep its earlier pod here as well
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
	s.replace(now)
	return nil
}

// list opens a trusted directory and returns the sorted names of its files, without hidden ones. The caller closes the
// directory, unless it is nil.
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

// one reads a file of the directory. A subdirectory is ignored.
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

// contents returns the contents of a trusted file, or nil if the name is not a file.
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

// replace sets the files and pods, and reports new and removed pods.
func (s *Source) replace(now map[string]file) {
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
			next[uid] = old // has the time when it was first seen
		}
		s.ever[uid] = true
	}
	s.files, s.pods = now, next
	quiet := slices.DeleteFunc(slices.Collect(maps.Keys(s.reported)), func(name string) bool {
		_, there := now[name]
		return there || name == s.o.Dir
	})
	for _, name := range quiet {
		delete(s.reported, name)
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
