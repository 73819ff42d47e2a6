package logs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// PrepareRun prepares a pod's log directory for another run of the pod, which counts its containers' restarts from 0.
// Each container's logs become the older file of its next log. PrepareRun removes the oldest files beyond Bound bytes.
func PrepareRun(dir string) error {
	containers, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("carry logs over: %w", err)
	}
	for _, c := range containers {
		if err := prepareRun(filepath.Join(dir, c.Name())); err != nil {
			return fmt.Errorf("carry logs over: %w", err)
		}
	}
	return nil
}

// run is one log file of run n of a container. older means that it comes before another file of that run.
type run struct {
	name  string
	n     int
	older bool
	size  int64
}

func prepareRun(dir string) error {
	runs, err := runsOf(dir)
	if err != nil || len(runs) == 0 {
		return err
	}
	next, err := os.CreateTemp(dir, ".carried-")
	if err != nil {
		return err
	}
	defer next.Close()
	for i, size := len(runs)-1, int64(0); i >= 0; i-- {
		if size += runs[i].size; size > Bound && i < len(runs)-1 {
			break
		}
		runs[i].size = -1 // keep it
	}
	for _, r := range runs {
		if r.size < 0 {
			err = errors.Join(err, appendFile(next, filepath.Join(dir, r.name)))
		}
	}
	if err != nil {
		return errors.Join(err, os.Remove(next.Name()))
	}
	first := Older("0.log")
	err = os.Rename(next.Name(), filepath.Join(dir, first))
	for _, r := range runs {
		if err == nil && r.name != first {
			err = os.Remove(filepath.Join(dir, r.name))
		}
	}
	return err
}

// runsOf returns the files of a container's logs, the oldest first.
func runsOf(dir string) (runs []run, err error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		number, rest, _ := strings.Cut(f.Name(), ".")
		n, err := strconv.Atoi(number)
		info, gone := f.Info()
		if err != nil || gone != nil || !info.Mode().IsRegular() || rest != "log" && rest != Older("log") {
			continue
		}
		runs = append(runs, run{name: f.Name(), n: n, older: rest != "log", size: info.Size()})
	}
	slices.SortFunc(runs, func(a, b run) int {
		if a.n == b.n && a.older {
			return -1
		}
		return cmp.Or(cmp.Compare(a.n, b.n), 1)
	})
	return runs, nil
}

func appendFile(to io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(to, f)
	return err
}
