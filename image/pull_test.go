package image

import (
	"testing"

	"io/fs"

	"github.com/erofs/go-erofs"
)

func TestPull(t *testing.T) {
	s, _ := openStore(t, "run")
	host := startRegistry(t, nil)
	img := imageOf(t, tarOf(t, file("etc/a", "one"), file("etc/b", "two")), tarOf(t, file("etc/.wh.a", ""), file("etc/c", "three")))
	push(t, host+"/demo:1", img)
	got, err := s.Pull(testContext(t), host+"/demo:1", PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	noTemps(t, s)
	if !validID(got.ID) || got.Names[0] != host+"/demo:1" || got.User != "nobody" {
		t.Errorf("got %+v", got)
	}
	disk, err := s.OpenDisk(got.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	fsys, err := erofs.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string]string{"etc/b": "two", "etc/c": "three"} {
		data, err := fs.ReadFile(fsys, name)
		if err != nil || string(data) != body {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if _, err := fs.Stat(fsys, "etc/a"); err == nil {
		t.Error("etc/a is still there")
	}
}
