// Package equality tests hand-written comparisons: a field that one of them forgets is a
// change that goes unnoticed.
package equality

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"
	"time"
)

// Sees tests that equal tells two values apart that differ in anything, in whatever field of
// whatever is in them, and takes two for the same that differ in nothing. Fields that are
// not exported count only in the types of the standard library for addresses and times; of
// slices and maps the values have one element each.
func Sees[T any](t *testing.T, equal func(a, b T) bool) {
	t.Helper()
	for _, path := range blind(equal) {
		t.Errorf("two values that differ in %T%s are taken for the same", *new(T), path)
	}
	if one, same := with[T](-1), with[T](-1); !equal(one.value, same.value) {
		t.Errorf("two values are told apart that differ in nothing: %+v", one.value)
	}
}

// blind has the paths of the leaves in which equal does not see a difference.
func blind[T any](equal func(a, b T) bool) []string {
	var unseen []string
	whole := with[T](-1)
	for at, path := range whole.leaves {
		if changed := with[T](at); equal(whole.value, changed.value) || equal(changed.value, whole.value) {
			unseen = append(unseen, path)
		}
	}
	return unseen
}

// filled is a value with something in each field, and the paths of its leaves.
type filled[T any] struct {
	value  T
	leaves []string
}

// with fills a value, with something else in the leaf of this number.
func with[T any](changed int) (made filled[T]) {
	f := filling{changed: changed}
	f.fill(reflect.ValueOf(&made.value).Elem(), "")
	made.leaves = f.leaves
	return made
}

// filling fills a value.
type filling struct {
	changed int
	leaves  []string // paths of those that are filled
}

func (f *filling) fill(v reflect.Value, path string) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(int64(f.leaf(path)), 0)))
		return
	case netip.Addr:
		v.Set(reflect.ValueOf(address(f.leaf(path))))
		return
	case netip.Prefix:
		v.Set(reflect.ValueOf(netip.PrefixFrom(address(f.leaf(path)), 32)))
		return
	case netip.AddrPort:
		v.Set(reflect.ValueOf(netip.AddrPortFrom(address(f.leaf(path)), 1)))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				f.fill(v.Field(i), path+"."+field.Name)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), path)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fill(v.Index(0), path+"[0]")
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	case reflect.Map:
		key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key, path+" key")
		f.fill(elem, path+"[]")
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, elem)
	case reflect.Bool:
		v.SetBool(f.leaf(path) == 1)
	case reflect.String:
		v.SetString(fmt.Sprint(f.leaf(path)))
	default:
		n := reflect.ValueOf(f.leaf(path))
		if !n.CanConvert(v.Type()) {
			panic(fmt.Sprintf("%s of kind %s cannot be filled", path, v.Kind()))
		}
		v.Set(n.Convert(v.Type()))
	}
}

// leaf numbers the next leaf, and is 2 for the one that is to differ and 1 for all others.
func (f *filling) leaf(path string) uint8 {
	f.leaves = append(f.leaves, path)
	if len(f.leaves)-1 == f.changed {
		return 2
	}
	return 1
}

func address(n uint8) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, n}) }
