// Package atomicfile replaces files as a whole: readers see the old content or the new one and never a part, even after
// a crash at any moment.
package atomicfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Durability says whether the content must survive a power failure.
type Durability bool

// The two durabilities. Volatile files are lost with the boot. Durable ones are synced before they are renamed into
// place, and so is their directory.
const (
	Volatile Durability = false
	Durable  Durability = true
)

// ErrCorrupt is returned by ReadJSON for a file with damaged content. The content is never taken for an empty or
// default value.
var ErrCorrupt = errors.New("file is damaged")

// maxJSON is the most bytes that ReadJSON reads into memory.
const maxJSON = 16 << 20

// Write writes data to path with mode.
func Write(path string, data []byte, mode os.FileMode, d Durability) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, errors.Join(err, os.Remove(f.Name())))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil && d == Durable {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	if d == Durable {
		return SyncDir(filepath.Dir(path))
	}
	return nil
}

// WriteJSON writes v's indented JSON to path.
func WriteJSON(path string, v any, mode os.FileMode, d Durability) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return Write(path, append(data, '\n'), mode, d)
}

// ReadJSON reads a file of WriteJSON. A missing file is os.ErrNotExist; a truncated or invalid one is ErrCorrupt.
func ReadJSON(path string, v any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxJSON+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if len(data) > maxJSON {
		return fmt.Errorf("read %s: %w: larger than %d bytes", path, ErrCorrupt, maxJSON)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("read %s: %w: %w", path, ErrCorrupt, err)
	}
	return nil
}

// SyncDir makes renames within dir survive a power failure.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
