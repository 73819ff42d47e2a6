package worker

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/erofs/go-erofs"
)

const outputBuffer = 256 << 10

// xattrRecord is the prefix of the PAX records that hold extended attributes.
const xattrRecord = "SCHILY.xattr."

// export writes every file of a disk to out, a tar stream.
func export(disk, out *os.File) error {
	files, err := erofs.Open(disk)
	if err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	buffered := bufio.NewWriterSize(out, outputBuffer)
	e := exporter{files: files, out: tar.NewWriter(buffered), first: map[int64]string{}}
	if err := fs.WalkDir(files, ".", e.entry); err != nil {
		return err
	}
	return errors.Join(e.out.Close(), buffered.Flush())
}

// exporter writes files one after the other.
type exporter struct {
	files fs.FS
	out   *tar.Writer
	first map[int64]string // names of files that have several, by inode
}

func (e *exporter) entry(path string, entry fs.DirEntry, err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	info, err := entry.Info()
	if err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	st, ok := info.Sys().(*erofs.Stat)
	if !ok {
		return fmt.Errorf("%w: %.255q has no attributes", errDamaged, path)
	}
	h, err := e.header(path, st)
	if err != nil {
		return err
	}
	if err := e.out.WriteHeader(h); err != nil {
		return fmt.Errorf("%.255q: %w", path, err)
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	f, err := e.files.Open(path)
	if err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	_, err = io.CopyN(e.out, f, h.Size)
	return errors.Join(err, f.Close())
}

// header returns the layer's header of a file.
func (e *exporter) header(path string, st *erofs.Stat) (*tar.Header, error) {
	h := &tar.Header{
		Format: tar.FormatPAX, Name: path, Mode: int64(st.Mode.Perm()), Uid: int(st.UID), Gid: int(st.GID),
		ModTime: time.Unix(int64(st.Mtime), int64(st.MtimeNs)), PAXRecords: map[string]string{},
	}
	for bit, mode := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if st.Mode&bit != 0 {
			h.Mode |= mode
		}
	}
	for name, value := range st.Xattrs {
		h.PAXRecords[xattrRecord+name] = value
	}
	if name, ok := e.first[st.Ino]; ok {
		h.Typeflag, h.Linkname, h.PAXRecords = tar.TypeLink, name, nil
		return h, nil
	}
	if !st.Mode.IsDir() && st.Nlink > 1 {
		e.first[st.Ino] = path
	}
	switch st.Mode.Type() {
	case 0:
		h.Typeflag, h.Size = tar.TypeReg, st.Size
	case fs.ModeDir:
		h.Typeflag, h.Name = tar.TypeDir, path+"/"
	case fs.ModeSymlink:
		target, err := fs.ReadLink(e.files, path)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errDamaged, err)
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
	case fs.ModeNamedPipe:
		h.Typeflag = tar.TypeFifo
	case fs.ModeDevice, fs.ModeDevice | fs.ModeCharDevice:
		h.Typeflag = tar.TypeBlock
		if st.Mode&fs.ModeCharDevice != 0 {
			h.Typeflag = tar.TypeChar
		}
		// The encoding of the kernel's new_encode_dev.
		h.Devmajor, h.Devminor = int64(st.Rdev>>8&0xfff), int64(st.Rdev&0xff|st.Rdev>>12&^0xff)
	default:
		return nil, fmt.Errorf("%w: %.255q is a %v", errDamaged, path, st.Mode.Type())
	}
	return h, nil
}
