needs cc
# An extension that was compiled by a newer gcc than the host has.
printf 'int new_symbol(void) { return 1; }\n' >new.c
printf 'GLIBCXX_3.4.34 { global: new_symbol; };\n' >new.map
cc -shared -fPIC -o libstdc++.so.6 -Wl,-soname,libstdc++.so.6 -Wl,--version-script=new.map new.c
printf 'int new_symbol(void); int sum(void) { return new_symbol(); }\n' >ext.c
mkdir -p sparse
cc -shared -fPIC -o sparse/_C.so ext.c ./libstdc++.so.6
rm libstdc++.so.6 new.c new.map ext.c
plan --num-workers 1 -- python3 train.py
launch
