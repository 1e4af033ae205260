#SBATCH --=4 --nodes=2
run --=1 --num-layers 4 --x
