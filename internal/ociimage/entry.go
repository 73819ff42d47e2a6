package ociimage

import (
	"archive/tar"
	"path"
)

// Entry is one entry of a layer: any tar header, and a file's content. The header's size is set from the content. The
// default time is the epoch.
type Entry struct {
	tar.Header
	Body []byte
}

// File returns a regular file of root.
func File(name string, mode int64, body string) Entry {
	return Entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode}, Body: []byte(body)}
}

// Dir returns a directory of root.
func Dir(name string, mode int64) Entry {
	return Entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: path.Clean(name) + "/", Mode: mode}}
}

// Symlink returns a symbolic link.
func Symlink(name, target string) Entry {
	return Entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}}
}

// Hardlink returns another name of an entry that comes before it in the same layer or lies in a lower one.
func Hardlink(name, target string) Entry {
	return Entry{Header: tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target, Mode: 0o644}}
}

// CharDevice returns a character device node.
func CharDevice(name string, mode, major, minor int64) Entry {
	return Entry{Header: tar.Header{Typeflag: tar.TypeChar, Name: name, Mode: mode, Devmajor: major, Devminor: minor}}
}

// Whiteout removes name from the layers below.
func Whiteout(name string) Entry {
	return File(path.Join(path.Dir(name), ".wh."+path.Base(name)), 0, "")
}

// Xattr returns e with an extended attribute.
func (e Entry) Xattr(name, value string) Entry {
	records := map[string]string{"SCHILY.xattr." + name: value}
	for k, v := range e.PAXRecords {
		records[k] = v
	}
	e.PAXRecords = records
	return e
}

// Owner returns e owned by uid and gid.
func (e Entry) Owner(uid, gid int) Entry {
	e.Uid, e.Gid = uid, gid
	return e
}
